"""Intervals hold the truth as often as they say, and verdicts are those of the interval."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.demo.stats import percentile
from koordlet.protocol.intervals import (
    Interval,
    Verdict,
    mean,
    mean_of,
    quantile_of,
    ratio,
    verdict,
)


@pytest.mark.parametrize(
    ("low", "high", "at_most", "wanted"),
    [
        (1.01, 1.05, True, Verdict.REACHED),
        (1.06, 1.20, True, Verdict.MISSED),
        (1.00, 1.20, True, Verdict.UNDECIDED),
        (0.90, 0.95, False, Verdict.REACHED),
        (0.70, 0.80, False, Verdict.MISSED),
        (0.80, 0.90, False, Verdict.UNDECIDED),
    ],
)
def test_a_verdict_is_that_of_the_whole_interval(
    low: float, high: float, at_most: bool, wanted: Verdict
) -> None:
    goal = 1.05 if at_most else 0.85
    assert verdict(Interval((low + high) / 2, low, high), goal, at_most=at_most) == wanted


@given(
    slices=st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=1, max_size=8),
    share=st.floats(0.01, 1.0),
    data=st.data(),
)
def test_a_quantile_is_that_of_the_slices_drawn_thrown_together(
    slices: list[list[float]], share: float, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.integers(0, len(slices) - 1), min_size=1, max_size=8))
    together = sorted(value for index in drawn for value in slices[index])
    assert quantile_of(slices, share)(drawn) == percentile(together, share)


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Slices have queues of their own, so their means differ by more than requests do."""
    draw, inside = random.Random(5), 0
    for seed in range(100):
        arms = []
        for true in (20.0, 10.0):
            queues = [draw.gauss(true, true / 10) for _ in range(20)]
            arms.append([sum(draw.expovariate(1 / q) for _ in range(50)) / 50 for q in queues])
        top, bottom = arms
        found = ratio(mean_of(top), mean_of(bottom), len(top), seed=seed)
        assert found is not None and found.low is not None and found.high is not None
        inside += found.low <= 2.0 <= found.high
    assert 85 <= inside <= 99


def test_what_drifts_for_both_arms_does_not_widen_the_interval() -> None:
    draw = random.Random(3)
    drift = [draw.uniform(5.0, 50.0) for _ in range(20)]
    found = ratio(mean_of([2 * each for each in drift]), mean_of(drift), len(drift))
    assert found is not None and found.low is not None and found.high is not None
    assert found.high - found.low < 1e-6


def test_few_slices_and_no_divisor_say_nothing() -> None:
    values = [1.0, 2.0, 3.0]
    assert mean(values) == Interval(2.0)
    assert ratio(mean_of(values), mean_of(values), 3) == Interval(1.0)
    assert verdict(Interval(1.0), 2.0) is Verdict.UNDECIDED
    nothing = [0.0] * 5
    assert ratio(mean_of(nothing), mean_of(nothing), 5) is None


def test_the_same_slices_give_the_same_interval() -> None:
    slices = [[float(n + k) for n in range(30)] for k in range(8)]
    top, bottom = quantile_of(slices, 0.99), quantile_of(slices, 0.5)
    assert ratio(top, bottom, 8) == ratio(top, bottom, 8)
