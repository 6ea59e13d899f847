"""What the real plugins keep from one question to the next is what fresh ones find."""

from __future__ import annotations

import json
import random

import msgspec
import numpy as np
import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import (
    Claim,
    NodeRequirement,
    Pod,
    PodClass,
    PreferredNodes,
    SpreadConstraint,
    Toleration,
)
from koord_scheduler.place.load_arguments import THRESHOLDS
from koord_scheduler.place.load_reading import LOAD, NodeLoad, PodLoad
from koord_scheduler.place.node_states import RequestError, States, Tries
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.profile import built_in, make
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.selector import LabelSelector
from tests.companion.place.build import cls

NODES, STEPS = 80, 400
RATIO = "node.koordinator.sh/resource-amplification-ratio"
WEB = LabelSelector(match_labels={"app": "web"})
PROFILE = msgspec.structs.replace(
    built_in(),
    args={
        "LoadAwareScheduling": {
            "usageThresholds": {"cpu": 0},
            "dominantResourceWeight": 1,
            "scoreAccordingProdUsage": True,
        }
    },
)


def kinds() -> list[PodClass]:
    amounts = {"cpu": 900, "memory": 1 << 30}
    wish = PreferredNodes(5, (NodeRequirement("zone", "In", ("z1",)),))
    return [
        cls(requests=amounts, labels={"app": "web"}, priority_class=PriorityClass.PROD),
        cls(requests={"cpu": 300}, tolerations=(Toleration("a", "Exists"),)),
        cls(requests=amounts, node_selector={"zone": "z1"}),
        cls(requests=amounts, preferred_nodes=(wish,)),
        cls(labels={"app": "web"}, spread=(SpreadConstraint("zone", 2, True, WEB),)),
        cls(requests={"cpu": 1, "memory": 0}),
    ]


def some_node(chance: random.Random) -> Node:
    """Most are alike; few have taints, thresholds or amplified CPU, or are cordoned."""
    seldom = chance.random()
    annotations: dict[str, str] = {}
    if seldom < 0.1:
        annotations[THRESHOLDS] = json.dumps({"usageThresholds": {"cpu": chance.randrange(10, 90)}})
    elif seldom < 0.15:
        annotations[RATIO] = '{"cpu": 1.5}'
    taints = {0: "NoSchedule", 1: "PreferNoSchedule"}.get(chance.randrange(12))
    return Node(
        name=f"n{chance.randrange(NODES)}",
        labels={"zone": f"z{chance.randrange(3)}"},
        annotations=annotations,
        taints=(Taint("a", "", taints),) if taints else (),
        unschedulable=chance.random() < 0.05,
        allocatable={"cpu": chance.randrange(2_000, 9_000), "memory": 16 << 30, "pods": 20},
    )


def change(cluster: Cluster, engine: Engine, chance: random.Random, step: int) -> None:
    name = f"n{chance.randrange(NODES)}"
    match chance.randrange(10):
        case 0 | 1:
            cluster.set_node(some_node(chance))
        case 2:
            cluster.remove_node(name)
        case 3:
            used = {"cpu": chance.randrange(9_000), "memory": chance.randrange(16) << 30}
            seen = {key: PodLoad(True, 100, 1 << 20) for key in sorted(cluster.claims)[:5]}
            since_s = cluster.now_s - chance.choice((10, 290))
            load = NodeLoad(usage=used, update_time_s=since_s, pods=seen)
            cluster.put(LOAD, name, load if chance.random() < 0.9 else None)
        case 4:
            engine.tick(cluster.now_s + chance.choice((0, 20)))
        case 5 if cluster.claims:
            key = chance.choice(sorted(cluster.claims))
            gone = cluster.remove(key)
            if gone is not None and chance.random() < 0.5:
                ending = msgspec.structs.replace(gone.pod, terminating=True)
                cluster.add(Claim(ending, gone.node))
        case _:
            of = chance.choice(KINDS)
            engine.place(Pod(key=f"ns/{step}", uid=f"{step}", cls=of, labels=of.labels))


KINDS = kinds()


@pytest.mark.parametrize("seed", range(4))
def test_what_plugins_keep_is_what_fresh_ones_find(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster()
    cluster.now_s = 1_000_000.0
    engine = Engine(cluster, make(PROFILE))
    for step in range(STEPS):
        change(cluster, engine, chance, step)
        if step % 8:
            continue
        fresh = Engine(cluster, make(PROFILE))
        for of in chance.sample(KINDS, 3):
            kept, new = engine.evaluator.judge(of), fresh.evaluator.judge(of)
            assert kept.why.tolist() == new.why.tolist()
            assert kept.scores.tolist() == new.scores.tolist()
            rows = new.rows
            each = fresh.evaluator.scores(of, rows)
            local = sum(each.values(), np.zeros(len(rows), np.int64))
            assert new.scores.tolist() == local.tolist()


def test_an_attempt_that_fails_is_made_again() -> None:
    cluster = Cluster()
    cluster.set_node(Node(name="n1", allocatable={"cpu": 1_000}))
    answers = iter([ValueError("broken"), (7, 1)])

    def attempt(ask: int, state: int) -> tuple[int, int]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    def read(pod: PodClass) -> int | None:
        if pod.labels:
            raise RequestError("too much")
        return 1 if pod.requests else None

    states: States[int] = States(lambda cluster, row: None, lambda site: 0)
    tries = Tries("Plugin", states, read, attempt)
    tried, rows = tries.of(cls(requests={"cpu": 1})), cluster.rows()
    with pytest.raises(ValueError, match="broken"):
        tries.judge(tried, states.numbers(cluster)[rows])
    why, score = tries.judge(tried, states.numbers(cluster)[rows])
    assert (why.tolist(), score.tolist()) == ([7], [1])
    refused, nothing = cls(labels={"a": "b"}), cls()
    assert tries.of(refused).code != 0
    assert tries.offers(cluster, refused, rows, 5, lambda ask, state: 1).tolist() == [0]
    assert tries.offers(cluster, nothing, rows, 5, lambda ask, state: 1).tolist() == [5]
