"""Means that are tried in turn, and which is kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from koordlet.decision.snapshot import Means
from koordlet.qos.cpu_means.look import Look
from koordlet.qos.cpu_means.trial import (
    DROP_S,
    ROUNDS,
    ROUNDS_OF_ALL,
    SLICE_S,
    Kept,
    Trial,
    begin,
    choose,
    step,
)

IDLE, WEIGHT, FREE = Means(), Means(weight=True), Means(spread=False)
CANDIDATES = (IDLE, WEIGHT, FREE)
Node = Callable[[Means], Look]


def _look(waited_ms: float, be_cores: float = 1.5) -> Look:
    return Look(waited_ms, 0.0, 0.0, 0.4, be_cores)


def _played(node: Node) -> Trial:
    now = 100.0
    trial = begin(CANDIDATES, now, seed=1)
    while not trial.is_over:
        now += 1.0
        after = step(trial, node(trial.means), now)
        assert after is not None
        trial = after
        assert now < 10_000
    return trial


def _kept(node: Node) -> Kept:
    return choose(_played(node), 1.0)


def test_each_is_tried_as_often_as_the_others() -> None:
    seen: list[Means] = []

    def node(means: Means) -> Look:
        seen.append(means)
        return _look(10.0)

    trial = _played(node)
    assert [len(slices) for slices in trial.done] == [ROUNDS] * 3
    assert set(Counter(seen).values()) == {ROUNDS * int(SLICE_S)}
    assert seen[: 3 * int(SLICE_S)] != seen[3 * int(SLICE_S) : 6 * int(SLICE_S)]


def test_what_is_much_too_bad_is_not_tried_further() -> None:
    """Services wait meanwhile; the default stays for the comparison."""
    costs = {IDLE: 200.0, WEIGHT: 40.0, FREE: 90.0}
    trial = _played(lambda means: _look(costs[means]))
    assert [len(slices) for slices in trial.done] == [ROUNDS, ROUNDS, ROUNDS_OF_ALL]
    assert choose(trial, 1.0).means == WEIGHT
    first = begin(CANDIDATES, 0.0, seed=1)
    assert first.most_left_s == 3 * ROUNDS * SLICE_S and trial.most_left_s == 0


def test_the_least_harmful_is_kept() -> None:
    draw = random.Random(2)
    costs = {IDLE: 150.0, WEIGHT: 40.0, FREE: 70.0}
    kept = _kept(lambda means: _look(costs[means] * draw.uniform(0.8, 1.2)))
    assert kept.means == WEIGHT
    assert kept.ratio is not None and kept.ratio.high is not None and kept.ratio.high < 0.5
    assert kept.figures[0].waited_ms == pytest.approx(150, rel=0.2)


def test_what_is_not_surely_better_is_not_taken() -> None:
    draw = random.Random(3)
    kept = _kept(lambda means: _look(draw.uniform(10.0, 90.0)))
    assert (kept.means, kept.ratio) == (IDLE, None)


def test_waits_are_weighed_by_what_best_effort_gets() -> None:
    """Nothing waits where nothing runs."""
    half = {IDLE: _look(60.0, 1.5), WEIGHT: _look(5.0, 0.7), FREE: _look(40.0, 1.45)}
    assert _kept(half.__getitem__).means == FREE


def test_the_beginning_of_a_slice_does_not_count() -> None:
    """The kernel still does what the means before asked for."""
    since: dict[Means, int] = Counter()

    def node(means: Means) -> Look:
        since[means] = since[means] % int(SLICE_S) + 1
        return _look(900.0 if since[means] <= DROP_S else 30.0)

    assert {round(each.waited_ms) for each in _kept(node).figures} == {30}


def test_a_slice_without_a_look_ends_the_trial() -> None:
    trial = begin(CANDIDATES, 0.0, seed=1)
    for second in range(1, int(SLICE_S)):
        after = step(trial, None, float(second))
        assert after is not None
        trial = after
    assert step(trial, None, SLICE_S) is None
