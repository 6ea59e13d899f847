"""How points become one number: the reference's rules
(docs/reference/metrics.md 3.1), plus min and max.

A percentile is the point at index ``trunc(n * p) - 1`` (not below 0) of the ascending order,
without interpolation. A mean is unweighted. Of several newest points the first seen is the last.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from koordlet.decision.metrics import Aggregate

PERMILLE = {Aggregate.P50: 500, Aggregate.P90: 900, Aggregate.P95: 950, Aggregate.P99: 990}

# Points a pool keeps one by one; more are counted by distinct value, of which a disk's
# quantised samples have few.
_LOOSE_POINTS = 65536
_GAP = array("f", [float("nan")]).tobytes()


class AggregateResult(msgspec.Struct, frozen=True):
    """``first_ms`` and ``last_ms`` span the points of all matched series (the reference: only of
    the last one, D-18); for a count of 0 both are the start of the window."""

    value: float
    count: int
    first_ms: int
    last_ms: int


def rank(count: int, permille: int) -> int:
    """Index into the ascending order."""
    return max(count * permille // 1000 - 1, 0)


def summarise(values: Sequence[float], how: Aggregate) -> float | None:
    """One series, in time order, without gaps. None when empty, 0 for a count."""
    if not values:
        return 0.0 if how is Aggregate.COUNT else None
    if how is Aggregate.AVG:
        return sum(values) / len(values)
    if how is Aggregate.LAST:
        return values[-1]
    if how is Aggregate.COUNT:
        return float(len(values))
    if how is Aggregate.MIN:
        return min(values)
    if how is Aggregate.MAX:
        return max(values)
    return select(values, rank(len(values), PERMILLE[how]))


def summarise_column(values: array[float], how: Aggregate) -> float | None:
    """An aggregate of one column of the hot window; many columns are constant for minutes."""
    raw = values.tobytes()
    if raw == raw[: values.itemsize] * len(values):
        points = [value for value in values[:1] if value == value]
        if how is Aggregate.COUNT and points:
            return float(len(values))
        return summarise(points, how)
    if _GAP in raw:
        return summarise([value for value in values if value == value], how)
    return summarise(values, how)


def select(values: Sequence[float], index: int) -> float:
    """The value at ``index`` of the ascending order.

    For a high index only the top is sorted: every eighth value gives a guess of where the top
    begins, a wrong guess falls back to sorting all. At 300 values a third of a full sort.
    """
    wanted = len(values) - index
    if wanted * 4 <= len(values):
        sample = sorted(values[::8])
        floor = sample[max(len(sample) - wanted // 8 - 4, 0)]
        top = [value for value in values if value > floor]
        if len(top) >= wanted:
            top.sort()
            return top[-wanted]
        if len(top) + values.count(floor) >= wanted:
            return floor
    return sorted(values)[index]


def without_gaps(times: Sequence[int], values: array[float]) -> tuple[Sequence[int], list[float]]:
    """The same points less those that are NaN."""
    dense = values.tolist()
    total = sum(dense)
    if total == total:
        return times, dense
    kept = [row for row, value in enumerate(dense) if value == value]
    return [times[row] for row in kept], [dense[row] for row in kept]


class Interval(NamedTuple):
    """Statistics that stand for the points of one coarse step, in the order they are stored."""

    points: float
    mean: float
    low: float
    p95: float
    high: float


def condense(values: Sequence[float]) -> Interval | None:
    """None without a point; NaN is no point."""
    points = sorted(value for value in values if value == value)
    if not points:
        return None
    count = len(points)
    p95 = points[rank(count, 950)]
    return Interval(count, sum(points) / count, points[0], p95, points[-1])


def spread(interval: Interval) -> list[float]:
    """As many ascending values, with this minimum, 95th percentile and maximum; the mean stands
    in for the median, straight lines between."""
    _, mean, low, p95, high = interval
    count = int(interval.points)
    top = rank(count, 950)
    above = [high] * (count - top - 1)
    if top < 2 or low == high:
        return [*[low] * top, p95, *above]
    half = top // 2
    middle = min(max(mean, low), p95)
    rising = [low + (middle - low) * step / half for step in range(half)]
    rising += [middle + (p95 - middle) * step / (top - half) for step in range(top - half)]
    return [*rising, p95, *above]


class Pool:
    """Points of any number of series and sources, in bounded memory."""

    def __init__(self, hows: Sequence[Aggregate]) -> None:
        self._ranked = any(how in PERMILLE for how in hows)
        self._loose: array[float] = array("f")
        self._tally: Counter[float] = Counter()
        self._count = 0
        self._total = 0.0
        self._low = self._high = self._last = 0.0
        self._first_ms = self._last_ms = 0

    @property
    def count(self) -> int:
        return self._count

    def add(self, times: Sequence[int], values: array[float]) -> None:
        """Points in any order; NaN is no point."""
        stamps, dense = without_gaps(times, values)
        if not dense:
            return
        newest = max(stamps)
        last = dense[stamps.index(newest)]
        self._note(min(stamps), newest, last, len(dense), sum(dense), min(dense), max(dense))
        if self._ranked:
            self._keep(dense)

    def add_interval(self, time: int, interval: Interval) -> None:
        """Points known by their statistics alone. They count as so many points; percentiles see
        them spread over the statistics, and the last of them is the mean."""
        count = int(interval.points)
        total = interval.mean * count
        self._note(time, time, interval.mean, count, total, interval.low, interval.high)
        if self._ranked:
            self._keep(spread(interval))

    def _note(
        self, first: int, last: int, value: float, count: int, total: float, low: float, high: float
    ) -> None:
        fresh = self._count == 0
        self._low = low if fresh else min(self._low, low)
        self._high = high if fresh else max(self._high, high)
        self._first_ms = first if fresh else min(self._first_ms, first)
        if fresh or last > self._last_ms:
            self._last_ms, self._last = last, value
        self._count += count
        self._total += total

    def _keep(self, values: list[float]) -> None:
        self._loose.extend(values)
        if len(self._loose) > _LOOSE_POINTS:
            self._tally.update(self._loose)
            del self._loose[:]

    def result(self, how: Aggregate, start_ms: int) -> AggregateResult | None:
        """None without a point, except for a count, which is 0 then."""
        if not self._count:
            return AggregateResult(0.0, 0, start_ms, start_ms) if how is Aggregate.COUNT else None
        return AggregateResult(self._value(how), self._count, self._first_ms, self._last_ms)

    def _value(self, how: Aggregate) -> float:
        if how in PERMILLE:
            return self._ranked_value(rank(self._count, PERMILLE[how]))
        return {
            Aggregate.AVG: self._total / self._count,
            Aggregate.LAST: self._last,
            Aggregate.COUNT: float(self._count),
            Aggregate.MIN: self._low,
            Aggregate.MAX: self._high,
        }[how]

    def _ranked_value(self, index: int) -> float:
        if not self._tally:
            return select(self._loose, index)
        self._tally.update(self._loose)
        del self._loose[:]
        for value in sorted(self._tally):
            index -= self._tally[value]
            if index < 0:
                return value
        raise AssertionError("the tally holds as many points as were counted")
