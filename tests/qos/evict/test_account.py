"""Victims of one round: docs/reference/qos.md 4.6."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.plan import Victim, VictimKind
from koordlet.qos.evict.account import Amounts, Chosen, CountedBy, Task, choose
from koordlet.qos.evict.config import Feature
from koordlet.qos.evict.victims import Candidate

GIB = 1 << 30
MEMORY, BATCH, MID = "memory", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu"


def someone(name: str) -> Candidate:
    return Candidate(Victim(VictimKind.POD, name), name, True, 5500)


def task(
    need: Amounts,
    gains: dict[str, Amounts],
    *,
    target: CountedBy = CountedBy.USED,
    feature: Feature = Feature.MEMORY,
    order: list[str] | None = None,
) -> Task:
    victims = tuple(someone(name) for name in (list(gains) if order is None else order))
    by_victim = {someone(name).victim: amounts for name, amounts in gains.items()}
    return Task(feature, target, need, victims, by_victim)


def names(found: Chosen) -> list[str]:
    return [choice.candidate.title for choice in found.choices]


MEMORY_OVER = task(
    {MEMORY: 2 * GIB},
    {"batch1": {MEMORY: 3 * GIB // 2}, "batch2": {MEMORY: 3 * GIB // 4}, "mid": {MEMORY: 3 * GIB}},
)
REQUESTS_OVER = task(
    {BATCH: 1200, MID: 1500},
    {"batch1": {BATCH: 1000}, "batch2": {BATCH: 500}, "mid": {MID: 2000}},
    target=CountedBy.REQUESTED,
    feature=Feature.CPU_ALLOCATABLE,
)


def test_example_of_the_reference() -> None:
    found = choose((MEMORY_OVER, REQUESTS_OVER), budget=10)
    assert names(found) == ["batch1", "batch2", "mid"]
    assert [choice.task.feature for choice in found.choices] == [
        *(Feature.MEMORY, Feature.MEMORY, Feature.CPU_ALLOCATABLE)
    ]
    totals: dict[str, int] = {}
    for choice in found.choices:
        for name, amount in choice.gains:
            totals[name] = totals.get(name, 0) + amount
    assert totals == {
        f"{MEMORY} used": 5 * GIB + GIB // 4,
        f"{BATCH} requested": 1500,
        f"{MID} requested": 2000,
    }
    assert not found.lacking and not found.over_budget


def test_no_more_than_needed() -> None:
    be = task({MEMORY: 18}, {"a": {MEMORY: 20}, "b": {MEMORY: 5}, "c": {MEMORY: 10}})
    assert names(choose((be,), budget=10)) == ["a"]
    more = task({MEMORY: 21}, {"a": {MEMORY: 20}, "b": {MEMORY: 5}, "c": {MEMORY: 10}})
    assert names(choose((more,), budget=10)) == ["a", "b"]
    most = task({MEMORY: 26}, {"a": {MEMORY: 20}, "b": {MEMORY: 5}, "c": {MEMORY: 10}})
    assert names(choose((most,), budget=10)) == ["a", "b", "c"]


def test_two_tasks_of_one_target_are_not_added_up() -> None:
    gains: dict[str, Amounts] = {"a": {MEMORY: 10}, "b": {MEMORY: 10}}
    first = task({MEMORY: 10}, gains, feature=Feature.BE_MEMORY)
    second = task({MEMORY: 20}, gains)
    found = choose((first, second), budget=10)
    assert names(found) == ["a", "b"]
    assert [choice.gains for choice in found.choices] == [((f"{MEMORY} used", 10),)] * 2


def test_those_on_their_way_count_first() -> None:
    be = task({MEMORY: 18}, {"a": {MEMORY: 20}, "b": {MEMORY: 5}, "c": {MEMORY: 10}})
    assert names(choose((be,), terminating=[someone("a").victim], budget=10)) == []
    assert names(choose((be,), terminating=[someone("c").victim], budget=10)) == ["a"]
    # Also one that no feature would choose now.
    rest = task({MEMORY: 18}, {"a": {MEMORY: 20}, "gone": {MEMORY: 18}}, order=["a"])
    assert names(choose((rest,), terminating=[someone("gone").victim], budget=10)) == []


def test_one_that_could_not_be_ended_is_passed_over() -> None:
    be = task({MEMORY: 18}, {"a": {MEMORY: 20}, "b": {MEMORY: 5}})
    found = choose((be,), failed=[someone("a").victim], budget=10)
    assert names(found) == ["b"]
    assert found.lacking == ((be, {MEMORY: 13}),)


def test_one_that_gives_nothing_is_passed_over() -> None:
    be = task({MEMORY: 5}, {"zero": {MEMORY: 0}, "other": {BATCH: 9}, "a": {MEMORY: 5}})
    assert names(choose((be,), budget=10)) == ["a"]


def test_the_budget_ends_a_round() -> None:
    be = task({MEMORY: 30}, {name: {MEMORY: 10} for name in "abc"})
    found = choose((be,), budget=2)
    assert names(found) == ["a", "b"] and found.over_budget
    assert names(choose((be,), budget=0)) == []
    enough = task({MEMORY: 20}, {name: {MEMORY: 10} for name in "abc"})
    assert not choose((enough,), budget=2).over_budget


_AMOUNTS = st.dictionaries(st.sampled_from([MEMORY, BATCH, MID]), st.integers(0, 100))


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Task], set[str], set[str], int]:
    everybody = [f"p{n}" for n in range(draw(st.integers(0, 8)))]
    tasks = [
        task(
            draw(_AMOUNTS),
            {name: draw(_AMOUNTS) for name in everybody},
            target=draw(st.sampled_from(CountedBy)),
            order=draw(st.permutations(everybody)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    some = st.sets(st.sampled_from(everybody)) if everybody else st.just(set())
    return tasks, draw(some), draw(some), draw(st.integers(0, 8))


@given(rounds())
def test_bounds(case: tuple[list[Task], set[str], set[str], int]) -> None:
    tasks, gone, failed, budget = case
    found = choose(
        tasks,
        terminating=[someone(name).victim for name in gone],
        failed=[someone(name).victim for name in failed],
        budget=budget,
    )
    chosen = names(found)
    assert len(chosen) == len(set(chosen)) <= budget
    assert not set(chosen) & (gone | failed)
    # Idempotent: once they are on their way, the next look at the same figures chooses nobody
    # else, unless the budget was what ended it.
    again = choose(
        tasks,
        terminating=[someone(name).victim for name in gone | set(chosen)],
        failed=[someone(name).victim for name in failed],
        budget=100,
    )
    assert found.over_budget or not again.choices
    # Each was needed: with those before it on their way it is chosen all the same. All tasks are
    # asked, because what a victim gives to one may serve another.
    for choice in found.choices:
        before = chosen[: chosen.index(choice.candidate.title)]
        without = choose(
            tasks,
            terminating=[someone(name).victim for name in gone | set(before)],
            failed=[someone(name).victim for name in failed],
            budget=100,
        )
        assert names(without)[:1] == [choice.candidate.title]
