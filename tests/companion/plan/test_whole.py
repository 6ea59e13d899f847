"""All plugins of the built-in profile together.

What is kept is what a fresh scheduler finds, and no node gets more than it has."""

from __future__ import annotations

import random

import numpy as np
import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import (
    HostPort,
    PodClass,
    PodTerm,
    SpreadConstraint,
    Toleration,
)
from koord_scheduler.place.load_reading import LOAD, NodeLoad
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.explain import explain
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.pods import Preemption, Preemptor
from koord_scheduler.plan.profile import built_in, make
from koordlet.protocol.selector import LabelSelector
from tests.companion.plan.build import classes, pod

GIB = 1 << 30
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def kinds() -> list[PodClass]:
    new = classes()
    red = LabelSelector(match_labels={"app": "red"})
    here = frozenset({"a"})
    spread = SpreadConstraint(ZONE, 1, True, red)
    return [
        new(cpu=700, memory=GIB, priority=1),
        new(cpu=1500, memory=GIB // 2, priority=5, tolerations=(Toleration("k", "Exists"),)),
        new(
            cpu=200,
            memory=GIB,
            labels={"app": "red"},
            spread=(spread,),
        ),
        new(cpu=100, memory=GIB, spread=(SpreadConstraint(HOST, 2, False, red),)),
        new(cpu=300, memory=GIB, labels={"app": "blue"}, anti_affinity=(PodTerm(HOST, red, here),)),
        new(cpu=300, memory=GIB, affinity=(PodTerm(ZONE, red, here),), priority=3),
        new(cpu=300, memory=GIB, preferred_affinity=(PodTerm(ZONE, red, here, weight=30),)),
        new(cpu=100, memory=GIB, ports=(HostPort(80),), node_selector={"disk": "ssd"}),
    ]


def some_node(chance: random.Random, number: int) -> Node:
    labels = {ZONE: f"z{number % 3}", HOST: f"n{number}"}
    if chance.random() < 0.5:
        labels["disk"] = "ssd"
    taints = (Taint("k", "v", chance.choice(("NoSchedule", "PreferNoSchedule"))),)
    return Node(
        name=f"n{number}",
        labels=labels,
        taints=taints if chance.random() < 0.3 else (),
        unschedulable=chance.random() < 0.1,
        allocatable={"cpu": chance.randrange(2, 9) * 1000, "memory": 16 * GIB, "pods": 12},
    )


def change(chance: random.Random, found: Cluster, decide: Engine, step: int) -> None:
    """One random event."""
    all_kinds = [found.class_of[number] for number in sorted(found.class_of)]
    do = chance.randrange(8)
    number = chance.randrange(14)
    if do == 0:
        found.set_node(some_node(chance, number))
    elif do == 1 and chance.random() < 0.3:
        found.remove_node(f"n{number}")
    elif do == 2 and found.claims:
        found.remove(chance.choice(sorted(found.claims)))
    elif do == 3:
        used = {"cpu": chance.randrange(4000), "memory": chance.randrange(12) * GIB}
        found.put(LOAD, f"n{number}", NodeLoad(update_time_s=found.now_s, usage=used))
    elif do == 4:
        decide.tick(found.now_s + chance.choice((1.0, 30.0, 200.0)))
    elif do == 5 and all_kinds:
        with found.trial():
            decide.place_all([pod(f"t{step}-{i}", chance.choice(all_kinds)) for i in range(4)])


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_a_fresh_scheduler_finds(seed: int) -> None:
    chance = random.Random(seed)
    found = Cluster()
    found.now_s = 1_000_000.0
    for number in range(10):
        found.set_node(some_node(chance, number))
    decide = Engine(found, make(built_in()))
    every = kinds()
    placed = 0
    for step in range(300):
        change(chance, found, decide, step)
        outcome = decide.place(pod(f"p{step}", chance.choice(every)))
        placed += isinstance(outcome, Placement)
        if isinstance(outcome, Placement):
            row = found.row[outcome.node]
            assert (found.requested[row] <= found.allocatable[row]).all()
        if step % 10 == 0:
            fresh = Engine(found, make(built_in()))
            for cls in every:
                kept, new = decide.evaluator.judge(cls), fresh.evaluator.judge(cls)
                assert kept.why.tolist() == new.why.tolist(), (step, cls)
                assert kept.scores.tolist() == new.scores.tolist(), (step, cls)
    assert placed > 50


@pytest.mark.parametrize("seed", range(4))
def test_a_failure_an_explanation_and_a_preemption_agree(seed: int) -> None:
    chance = random.Random(seed)
    found = Cluster()
    found.now_s = 1_000_000.0
    for number in range(8):
        found.set_node(some_node(chance, number))
    decide = Engine(found, make(built_in()))
    preemptor = Preemptor(decide)
    every = kinds()
    made_room = 0
    for step in range(150):
        asking = pod(f"p{step}", chance.choice(every))
        outcome = decide.place(asking)
        if isinstance(outcome, Placement):
            continue
        assert isinstance(outcome, Failure)
        explanation = explain(decide, asking)
        assert explanation.fits == 0
        assert sum(outcome.reasons.values()) == explanation.nodes == outcome.nodes
        room = preemptor.preempt(asking)
        if isinstance(room, Preemption):
            made_room += 1
            with found.trial():
                for victim in room.victims:
                    assert victim.cls.priority < asking.cls.priority
                    found.remove(victim.key)
                row = found.row[room.node]
                only = np.array([row], np.intp)
                assert isinstance(decide.place(asking, only), Placement)
    assert made_room
