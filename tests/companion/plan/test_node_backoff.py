"""Nodes that refused a pod are left alone, ever longer, and forgiven."""

from __future__ import annotations

import pytest

from koord_scheduler.plan.node_backoff import AVOIDED, expire, is_refusal, refused
from koord_scheduler.plan.outcomes import Failure, Placement
from tests.companion.plan.build import classes, cluster, engine, node, pod


@pytest.mark.parametrize(
    ("phase", "why", "expected"),
    [
        ("Failed", "OutOfcpu", True),
        ("Failed", "OutOfkoordinator.sh/gpu", True),
        ("Failed", "UnexpectedAdmissionError", True),
        ("Failed", "TopologyAffinityError", True),
        ("Failed", "Evicted", False),
        ("Running", "OutOfcpu", False),
        ("Failed", "", False),
    ],
)
def test_which_failures_are_refusals(phase: str, why: str, expected: bool) -> None:
    assert is_refusal(phase, why) is expected


def test_a_node_is_left_alone_for_a_while() -> None:
    found = cluster(node("n1", cpu=8000), node("n2", cpu=1500))
    decide = engine(found)
    cls = classes()(cpu=1000)
    assert refused(found, "n1", 100.0) == 110.0
    first = decide.place(pod("a", cls))
    assert isinstance(first, Placement)
    assert first.node == "n2"
    second = decide.place(pod("b", cls))
    assert isinstance(second, Failure)
    assert "1 node(s) refused a pod a moment ago" in second.text()
    assert not expire(found, 109.0)
    assert decide.tick(110.0)
    assert found.now_s == 110.0
    assert isinstance(decide.place(pod("b", cls)), Placement)


def test_it_takes_longer_each_time_and_is_forgotten() -> None:
    found = cluster(node("n1"))
    lengths = []
    now_s = 0.0
    for _ in range(7):
        until_s = refused(found, "n1", now_s)
        lengths.append(until_s - now_s)
        expire(found, until_s)
        now_s = until_s + 1
    assert lengths == [10, 20, 40, 80, 160, 300, 300]
    expire(found, now_s + 700)
    assert found.all(AVOIDED) == {}
    assert refused(found, "n1", now_s + 800) == now_s + 810
    refused(found, "unknown", now_s)  # before the node is known
    assert isinstance(engine(found).place(pod("p", classes()())), Failure)
