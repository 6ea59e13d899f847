"""The optimality gap: what a sample of the cluster says of greedy placement."""

from __future__ import annotations

import sys

import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.optimum.gap import MOST_NODES, MOST_PODS, gap, sample
from koord_scheduler.plan.optimum.solver import NotSolved, Solved, solve
from koord_scheduler.plan.profile import built_in, make
from tests.companion.place.build import cls, cluster, node, pod


def engine(where: Cluster) -> Engine:
    return Engine(where, make(built_in()), [])


def asks(name: str, cpu: int, gang: str = "") -> Pod:
    return pod(name, cls(requests={"cpu": cpu}), gang=gang)


def measured(where: Cluster, *pods: Pod) -> float:
    found = sample(engine(where), pods, 0)
    assert found is not None
    solved = solve(found.problem, 5.0)
    assert isinstance(solved, Solved)
    return gap(found, solved.bound)


def test_greedy_placement_that_takes_the_wrong_pods_has_a_gap() -> None:
    where = cluster(node("a", cpu=4000))
    # In this order the first takes the room of both others.
    assert measured(where, asks("x", 3000), asks("y", 2000), asks("z", 2000)) == pytest.approx(0.25)
    assert measured(where, asks("y", 2000), asks("z", 2000), asks("x", 3000)) == 0.0


def test_what_runs_and_what_refuses_for_other_reasons_counts_for_both() -> None:
    where = cluster(node("a", cpu=4000), node("b", cpu=4000, unschedulable=True))
    where.add(Claim(asks("there", 2000), "a"))
    assert measured(where, asks("x", 2000), asks("y", 2000)) == 0.0
    assert list(where.claims) == ["ns/there"]


def test_a_gang_is_whole_or_nothing_for_both() -> None:
    where = cluster(node("a", cpu=4000))
    gang = [asks(f"g{i}", 3000, "ns/g") for i in range(2)]
    assert measured(where, *gang, asks("x", 2000)) == 0.0


def test_the_sample_is_bounded_and_cuts_no_gang() -> None:
    where = cluster(*(node(f"n{i}") for i in range(100)))
    pods = [asks(f"p{i}", 100) for i in range(MOST_PODS - 1)]
    pods += [asks(f"g{i}", 100, "ns/g") for i in range(5)]
    found = sample(engine(where), pods, 0)
    assert found is not None
    assert found.problem.allowed.shape == (MOST_PODS - 1, MOST_NODES)
    assert sample(engine(where), [], 0) is None
    assert sample(engine(Cluster()), pods, 0) is None


def test_without_the_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    found = sample(engine(cluster(node("a"))), [asks("x", 100)], 0)
    assert found is not None
    solved = solve(found.problem, 1.0)
    assert isinstance(solved, NotSolved)
    assert "koordlet[optimum]" in solved.why
