"""Isolation, intervals, health and budget of the runner."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.collectors.base import Round
from koordlet.collectors.budget import BudgetOptions, BudgetState, weigh
from koordlet.collectors.runner import COUNTED
from koordlet.decision import metrics

from .world import World


class Spy:
    def __init__(self, name: str, *, interval_s: float = 1.0, optional: bool = False) -> None:
        self.name = name
        self.interval_s = interval_s
        self.optional = optional
        self.calls = 0
        self.closed = 0
        self.fails = False

    def collect(self, round_: Round) -> None:
        self.calls += 1
        round_.add(metrics.NODE_CPU_USAGE, (), 1.0)
        if self.fails:
            raise RuntimeError("broken")

    def close(self) -> None:
        self.closed += 1


def world_of(*spies: Spy, **options: object) -> World:
    world = World()
    world.runner = world.runner_of(*spies, **options)
    return world


def test_a_failing_collector_stops_nobody_and_leaves_nothing() -> None:
    bad, good = Spy("bad"), Spy("good")
    bad.fails = True
    world = world_of(bad, good)
    round_ = world.rounds(3)
    assert good.calls == 3 and len(round_.ids) == 1
    health = world.health("bad")
    assert not health.success and health.consecutive_failures == 3
    assert health.error == "RuntimeError: broken" and health.staleness_s == math.inf
    bad.fails = False
    world.rounds()
    health = world.health("bad")
    assert health.success and health.consecutive_failures == 0 and health.staleness_s == 0
    assert health.samples == 1
    bad.fails = True
    world.rounds(4)
    assert world.health("bad").staleness_s == pytest.approx(4)


def test_intervals_with_a_tick_that_jitters() -> None:
    fast, slow = Spy("fast"), Spy("slow", interval_s=10)
    world = world_of(fast, slow)
    for jitter in [0.0, 0.05, -0.1, 0.1, -0.05, 0.02] * 5:
        world.host.advance(1 + jitter)
        world.round()
    assert fast.calls == 30
    assert slow.calls == 3


def test_a_store_that_refuses_a_round_is_shown() -> None:
    world = world_of(Spy("a"))
    round_ids: list[int] = []

    def refuse(time_ms: int, ids: list[int], values: list[float]) -> None:
        round_ids.extend(ids)
        raise OSError(28, "No space left on device")

    world.runner._store.append = refuse
    world.rounds()
    assert round_ids and "No space" in world.runner.append_error


def test_shedding_and_coming_back() -> None:
    budget = BudgetOptions(cores=0.03, rounds_over=3, rounds_under=4)
    must, first, second = Spy("must"), Spy("first", optional=True), Spy("last", optional=True)
    world = world_of(must, first, second, budget=budget)

    def run(count: int, cores: float) -> list[bool]:
        for _ in range(count):
            world.cpu_s += cores
            world.rounds()
        return [health.shed for health in world.runner.health()]

    run(1, 0)
    assert run(2, 0.05) == [False, False, False]
    assert run(1, 0.05) == [False, False, True], "the last optional one goes first"
    assert second.closed == 1
    assert run(3, 0.05) == [False, True, True]
    assert run(10, 0.05) == [False, True, True], "what is not optional stays"
    assert run(10, 0.025) == [False, True, True], "between the thresholds nothing changes"
    assert run(4, 0.001) == [False, False, True]
    assert run(4, 0.001) == [False, False, False]
    assert must.calls == len(range(1 + 2 + 1 + 3 + 10 + 10 + 4 + 4))


def test_memory_sheds_too() -> None:
    budget = BudgetOptions(cores=1.0, memory_bytes=100, rounds_over=2, rounds_under=2)
    state = BudgetState()
    for memory, shed in ((101, 0), (101, 1), (80, 1), (80, 1), (59, 1), (59, 0)):
        state = weigh(state, 0.0, memory, 1, budget)
        assert state.shed == shed


@given(
    uses=st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 1e9)), max_size=200),
    optional=st.integers(0, 4),
)
def test_budget_never_leaves_its_bounds(uses: list[tuple[float, float]], optional: int) -> None:
    state = BudgetState()
    for used, memory in uses:
        before = state
        state = weigh(state, used, memory, optional, BudgetOptions(memory_bytes=5e8))
        assert 0 <= state.shed <= optional
        assert abs(state.shed - before.shed) <= 1


def test_counts_of_whole_events_are_never_too_young() -> None:
    rate, counts = Spy("rate"), Spy(*COUNTED)
    world = world_of(rate, counts)
    world.rounds(1)
    everything = (world.node, world.pods, world.applications)
    for step in (1, 2):
        world.host.advance(0.1)
        world.runner.refresh(frozenset({"rate", *COUNTED}), *everything)
        assert (rate.calls, counts.calls) == (1, 1 + step)
    world.host.advance(0.1)
    world.runner.refresh(frozenset({"rate"}), *everything)
    assert rate.calls == 2, "counts in between do not make a rate younger"


def test_an_alarm_refreshes_what_it_needs_and_moves_its_rhythm() -> None:
    fast, other = Spy("fast"), Spy("other")
    world = world_of(fast, other)
    world.rounds(1)
    host, runner = world.host, world.runner
    everything = (world.node, world.pods, world.applications)
    host.advance(0.1)
    runner.refresh(frozenset({"fast"}), *everything)
    assert (fast.calls, other.calls) == (1, 1), "the last round is too young for a rate"
    host.advance(0.5)
    runner.refresh(frozenset({"fast"}), *everything)
    assert (fast.calls, other.calls) == (2, 1)
    host.advance(0.4)
    runner.run(*everything)
    assert (fast.calls, other.calls) == (2, 2), "a whole interval after the alarm"
    host.advance(1.0)
    runner.run(*everything)
    assert (fast.calls, other.calls) == (3, 3)
