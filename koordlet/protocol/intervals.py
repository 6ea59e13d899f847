"""Ratios of arms that were measured in slices: 95 % intervals, and what may be said of a goal.

A slice is the unit that is drawn again: requests within one share its queue and its neighbours, so
they say less than as many that are independent.
"""

from __future__ import annotations

import enum
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean

import msgspec

DRAWS = 1000
_LOW, _HIGH = 0.025, 0.975
MIN_SLICES = 4
"""Fewer slices of an arm say nothing about how much they differ."""


class Interval(msgspec.Struct, frozen=True):
    """A figure and the interval that holds it with a probability of 95 %; None where there are
    fewer than ``MIN_SLICES``."""

    value: float
    low: float | None = None
    high: float | None = None


class Verdict(enum.StrEnum):
    """Judgement of a goal: reached by the whole interval, by none of it, or by a part of it."""

    REACHED = "reached"
    MISSED = "missed"
    UNDECIDED = "undecided"


Estimate = Callable[[Sequence[int]], float]
"""A figure of an arm out of the slices with these indices, which may repeat."""


def verdict(figure: Interval, goal: float, *, at_most: bool = True) -> Verdict:
    """Judge ``goal``, an upper limit or else a lower one, by the interval."""
    if figure.low is None or figure.high is None:
        return Verdict.UNDECIDED
    low, high = (figure.low, figure.high) if at_most else (-figure.high, -figure.low)
    limit = goal if at_most else -goal
    if high <= limit:
        return Verdict.REACHED
    return Verdict.MISSED if low > limit else Verdict.UNDECIDED


def ratio(top: Estimate, bottom: Estimate, slices: int, *, seed: int = 1) -> Interval | None:
    """``top`` divided by ``bottom``. Slices of one number were measured beside each other, with the
    same arrivals, so they are drawn together. None where the divisor is 0."""

    def quotient(drawn: Sequence[int]) -> float:
        divisor = bottom(drawn)
        return top(drawn) / divisor if divisor > 0 else math.inf

    if slices < 1 or not bottom(range(slices)) > 0:
        return None
    return _interval(quotient, slices, seed)


def mean(values: Sequence[float], *, seed: int = 1) -> Interval:
    """The mean of one value a slice. Raises ValueError for none."""
    if not values:
        raise ValueError("no slices to take a mean of")
    return _interval(mean_of(values), len(values), seed)


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of one value a slice, over the slices drawn."""
    return lambda drawn: fmean(values[index] for index in drawn)


def quantile_of(slices: Sequence[Sequence[float]], share: float) -> Estimate:
    """The nearest-rank quantile of all values of the slices drawn; 0 where there are none."""
    ordered = sorted((value, index) for index, values in enumerate(slices) for value in values)
    owners = [index for _, index in ordered]

    def estimate(drawn: Sequence[int]) -> float:
        times = [0] * len(slices)
        for index in drawn:
            times[index] += 1
        below = list(accumulate(times[owner] for owner in owners))
        if not below or not below[-1]:
            return 0.0
        rank = max(1, math.ceil(share * below[-1]))
        return ordered[bisect_left(below, rank)][0]

    return estimate


def _interval(estimate: Estimate, slices: int, seed: int) -> Interval:
    value = estimate(range(slices))
    if slices < MIN_SLICES:
        return Interval(value)
    draw = random.Random(seed)
    draws = sorted(estimate(draw.choices(range(slices), k=slices)) for _ in range(DRAWS))
    last = DRAWS - 1
    return Interval(value, draws[round(_LOW * last)], draws[round(_HIGH * last)])
