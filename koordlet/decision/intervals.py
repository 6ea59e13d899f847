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
    """A figure and the interval that holds it with a probability of 95 %."""

    value: float
    low: float
    high: float


class Verdict(enum.StrEnum):
    """Whether a goal is reached by the whole interval, by none of it, or by a part of it."""

    REACHED = "reached"
    MISSED = "missed"
    UNDECIDED = "undecided"


Estimate = Callable[[Sequence[int]], float]
"""A figure of an arm out of the slices with these indices, which may repeat."""


def verdict(figure: Interval, goal: float, *, at_most: bool = True) -> Verdict:
    """What the interval says about ``goal``, an upper limit or else a lower one."""
    low, high = (figure.low, figure.high) if at_most else (-figure.high, -figure.low)
    limit = goal if at_most else -goal
    if high <= limit:
        return Verdict.REACHED
    return Verdict.MISSED if low > limit else Verdict.UNDECIDED


def ratio(top: Estimate, bottom: Estimate, slices: int, *, seed: int = 1) -> Interval | None:
    """``top`` divided by ``bottom``. Slices of one number were measured beside each other, with the
    same arrivals, so they are drawn together. None for fewer than ``MIN_SLICES`` of each, and where
    the divisor is 0."""
    whole = bottom(range(slices)) if slices >= MIN_SLICES else 0.0
    if not whole > 0:
        return None
    draw = random.Random(seed)
    draws = []
    for _ in range(DRAWS):
        drawn = draw.choices(range(slices), k=slices)
        divisor = bottom(drawn)
        draws.append(top(drawn) / divisor if divisor > 0 else math.inf)
    return _interval(top(range(slices)) / whole, draws)


def mean(values: Sequence[float], *, seed: int = 1) -> Interval | None:
    """The mean of one value a slice. None for fewer than ``MIN_SLICES``."""
    if len(values) < MIN_SLICES:
        return None
    draw = random.Random(seed)
    draws = [fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS)]
    return _interval(fmean(values), draws)


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


def _interval(value: float, draws: list[float]) -> Interval:
    draws.sort()
    last = len(draws) - 1
    return Interval(value, draws[round(_LOW * last)], draws[round(_HIGH * last)])
