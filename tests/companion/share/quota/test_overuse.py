"""Overuse is revoked (docs/reference/central.md 4.9)."""

from __future__ import annotations

import pytest

from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.share.quota.overuse import Overuse, victims
from tests.companion.share.quota.build import PREEMPTIBLE, World, amounts, pod, pod_class, quota


def _claim(name: str, priority: int, since_s: float = 0.0, firm: bool = False) -> Claim:
    labels = {PREEMPTIBLE: "false"} if firm else {}
    return Claim(pod(name, pod_class({}, priority=priority, labels=labels)), "n", since_s)


def _lent(**more: object) -> World:
    """Quota a uses 20 of 20; then b wants its own 10."""
    world = World(
        amounts(20),
        quota("a", amounts(10), amounts(20)),
        quota("b", amounts(10), amounts(20)),
        monitor_all_quotas=True,
        **more,
    )
    for number, priority in enumerate((5, 1, 3, 1)):
        made = pod(f"p{number}", pod_class(amounts(5), "a", priority=priority))
        world.quotas.wait(made)
        world.run(made, number)
    world.request("b", amounts(20))
    return world


def _gone(overuse: Overuse, now_s: float) -> list[list[str]]:
    return [[each.pod.uid for each in one.claims] for one in overuse.due(now_s)]


def test_what_was_lent_is_taken_back_after_a_while_from_the_least_important() -> None:
    world = _lent()
    overuse = Overuse(world.quotas)
    assert world.cores("a", "b") == [10, 10]
    assert _gone(overuse, 0) == [] and _gone(overuse, 120) == []
    revocation = overuse.due(120.5)[0]
    # Of equal priority the youngest goes first.
    assert [each.pod.uid for each in revocation.claims] == ["p3", "p1"]
    assert revocation.why == "quota a uses cpu 20 and may use cpu 10 now"
    # Its time begins anew: evicted pods need a while to end.
    assert _gone(overuse, 121) == [] and _gone(overuse, 241) == [["p3", "p1"]]


def test_a_break_ends_the_time() -> None:
    world = _lent()
    overuse = Overuse(world.quotas)
    assert _gone(overuse, 0) == []
    world.total(amounts(60))
    assert _gone(overuse, 60) == []
    world.total(amounts(20))
    assert _gone(overuse, 90) == [] and _gone(overuse, 150) == []
    assert _gone(overuse, 211) == [["p3", "p1"]]


@pytest.mark.parametrize("off", [{"monitor_all_quotas": False}, {"enable_runtime_quota": False}])
def test_it_is_off_by_default(off: dict[str, bool]) -> None:
    world = World(amounts(1), quota("a", {}, amounts(9)), **{"monitor_all_quotas": True, **off})
    world.run(world.request("a", amounts(5)))
    overuse = Overuse(world.quotas)
    assert [overuse.due(at) for at in (0.0, 1000.0)] == [[], []]


def test_pods_that_do_not_help_stay_and_those_that_must_stay_too() -> None:
    claims = [_claim("x", 1), _claim("y", 2), _claim("z", 3), _claim("firm", 0, firm=True)]
    requests = [amounts(memory=5), amounts(4), amounts(4), amounts(4)]
    # x has no CPU, so its going would not help: it is tried back.
    assert victims(claims, requests, amounts(12, 5), amounts(8, 5)) == [1]


def test_all_resources_count() -> None:
    claims = [_claim("x", 1), _claim("y", 2)]
    requests = [amounts(4), amounts(4, 6)]
    # After x the CPU is in order; memory is not, though x has none of it.
    assert victims(claims, requests, amounts(8, 6), amounts(4, 5)) == [1]


def test_where_nothing_suffices_everything_goes() -> None:
    claims = [_claim("x", 1), _claim("firm", 0, firm=True)]
    assert victims(claims, [amounts(4), amounts(9)], amounts(13), amounts(5)) == [0]
