"""What a decision of the scheduler costs, with all plugins and without a server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from bench.figures import Figure
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass, PodTerm, SpreadConstraint
from koord_scheduler.place.load_reading import LOAD, NodeLoad
from koord_scheduler.place.load_tables import PodLoad
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.explain import explain
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.pods import Preemption, Preemptor
from koord_scheduler.plan.profile import built_in, make
from koordlet.protocol.selector import LabelSelector

GIB = 1 << 30
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CLASSES = 100
PODS_PER_NODE = 28


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    nodes, count = (200, 100) if smoke else (5000, 3000)
    cluster = filled(nodes)
    profile = built_in()
    say(f"{nodes} nodes, {len(cluster.claims)} pods, {len(profile.enabled)} plugins")
    engine = Engine(cluster, make(profile))
    kinds = classes(random.Random(2), 10_000)
    pods = [pod(f"new-{i}", kinds[i % CLASSES]) for i in range(count)]
    for cls in kinds:  # each class is judged on all nodes once
        engine.feasible(cls)
    spent_s: list[float] = []
    for each in pods:
        begun_s = time.perf_counter()
        outcome = engine.place(each)
        spent_s.append(time.perf_counter() - begun_s)
        assert isinstance(outcome, Placement), outcome
    mean_ms = sum(spent_s) * 1e3 / count
    figures = [
        Figure(f"a decision at {nodes} nodes, {CLASSES} classes in turn", mean_ms, "ms", 0.5),
        Figure("decisions of one core", 1e3 / mean_ms, "/s", 1500, at_most=False),
    ]
    equals = [pod(f"equal-{i}", kinds[3]) for i in range(count)]
    figures.append(
        Figure("a decision, one class", _mean_ms(lambda: engine.place(equals.pop()), count), "ms")
    )
    member = PodClass(number=20_002, namespace="b", requests={"cpu": 4000, "memory": GIB})
    assert 0 < engine.offers(member, 100).sum() < 100 * nodes
    offered_ms = _mean_ms(lambda: engine.offers(member, 100), 100)
    huge = PodClass(number=20_000, namespace="b", requests={"cpu": 63_000, "memory": GIB})
    figures.append(Figure("a gang that is too large is refused", offered_ms, "ms", 0.3))
    lost = pod("lost", huge)
    assert isinstance(engine.place(lost), Failure)
    figures.append(Figure("a full explanation", _mean_ms(lambda: explain(engine, lost), 5), "ms"))
    great = PodClass(
        number=20_001, namespace="b", requests={"cpu": 60_000, "memory": GIB}, priority=9000
    )
    preemptor = Preemptor(engine)
    rising = [pod(f"great-{i}", great) for i in range(6)]
    assert isinstance(preemptor.preempt(rising.pop()), Preemption)
    preempting_ms = _mean_ms(lambda: preemptor.preempt(rising.pop()), 5)
    figures.append(Figure("victims for a pod found", preempting_ms, "ms"))
    return figures


def filled(nodes: int) -> Cluster:
    """Nodes of 64 cores and 256 GiB with `PODS_PER_NODE` pods each, of `CLASSES` classes."""
    chance = random.Random(1)
    cluster = Cluster()
    cluster.now_s = 1_795_651_200.0
    for i in range(nodes):
        labels = {ZONE: f"z{i % 3}", HOST: f"n{i}"}
        room = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110, "ephemeral-storage": 500 * GIB}
        room |= {"kubernetes.io/batch-cpu": 30_000, "kubernetes.io/batch-memory": 100 * GIB}
        cluster.set_node(Node(name=f"n{i}", labels=labels, allocatable=room))
    kinds = classes(chance, 1)
    for i in range(nodes):
        keys = [f"a/old-{i}-{j}" for j in range(PODS_PER_NODE)]
        pods = {key: PodLoad(False, chance.randrange(50, 900), GIB) for key in keys}
        used = {"cpu": sum(load.cpu for load in pods.values()) + 500, "memory": 40 * GIB}
        load = NodeLoad(update_time_s=cluster.now_s - 30, usage=used, pods=pods)
        cluster.put(LOAD, f"n{i}", load)
        for j in range(PODS_PER_NODE):
            there = pod(f"old-{i}-{j}", chance.choice(kinds), node=f"n{i}", phase="Running")
            cluster.add(Claim(there, f"n{i}", cluster.now_s - 3600))
    return cluster


def classes(chance: random.Random, first: int) -> list[PodClass]:
    """Pods of web services: 100 to 2,000 milli-cores. One in ten is spread over zones, one keeps
    apart from its like where it can, one is bound to a zone."""
    found = []
    for i in range(CLASSES):
        app = f"app-{i}"
        selector = LabelSelector(match_labels={"app": app})
        spread = SpreadConstraint(ZONE, 50, hard=True, selector=selector)
        apart = PodTerm(HOST, selector, frozenset({"a"}), weight=50)
        amounts = {
            "cpu": chance.randrange(100, 2000),
            "memory": chance.randrange(1, 8) * GIB // 2,
        }
        found.append(
            PodClass(
                number=first + i,
                namespace="a",
                labels={"app": app},
                requests=amounts,
                limits={"cpu": 2000, "memory": 4 * GIB},
                priority=chance.choice((0, 100, 1000)),
                spread=(spread,) if i % 10 == 0 else (),
                preferred_anti_affinity=(apart,) if i % 10 == 1 else (),
                node_selector={ZONE: "z1"} if i % 10 == 2 else {},
            )
        )
    return found


def pod(name: str, cls: PodClass, node: str = "", phase: str = "Pending") -> Pod:
    return Pod(key=f"a/{name}", uid=name, cls=cls, labels=cls.labels, node=node, phase=phase)


def _mean_ms(call: Callable[[], object], times: int) -> float:
    spent = []
    for _ in range(times):
        begun_s = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begun_s)
    return float(np.mean(spent)) * 1e3
