"""Histograms that forget, as the reference keeps them (docs/reference/metrics.md 4.1).

Bounds of buckets are the reference's to the last bit, so the order of the operations is part of the
format: by rounding, a value on the edge of two buckets falls into the lower one, and so it must in
both programs. Weights may differ in the last bit, as they do between two architectures of Go.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

RATIO = 1.05
"""Each bucket is wider than the one before it by this factor."""
EPSILON = 0.0001
"""A bucket of less weight counts as empty."""
MAX_EXPONENT = 100
"""Half-lives after which weights are rescaled, so that they never overflow."""
SECOND_NS = 1_000_000_000
ZERO_NS = -62_135_596_800 * SECOND_NS
"""Year 1, from which the reference counts the multiples of a half-life; unix nanoseconds."""


@dataclass(frozen=True)
class Buckets:
    """``starts``: lower bound of each bucket; the last one has no upper bound."""

    first: float
    starts: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.starts)

    def find(self, value: float) -> int:
        if value < self.first:
            return 0
        return min(int(_log(value * (RATIO - 1) / self.first + 1)), self.count - 1)

    def end(self, bucket: int) -> float:
        """Of the last bucket its start."""
        return self.starts[min(bucket + 1, self.count - 1)]


def buckets(most: float, first: float) -> Buckets:
    """From 0 to ``most``; ``first`` is the width of the first bucket."""
    count = math.ceil(_log(most * (RATIO - 1) / first + 1)) + 1
    starts = (first * (_power(n) - 1) / (RATIO - 1) for n in range(1, count))
    return Buckets(first, (0.0, *starts))


def _power(exponent: int) -> float:
    """RATIO to the ``exponent`` by squaring, as Go does: libc's power differs in the last bits."""
    found, square = 1.0, RATIO
    while exponent:
        if exponent & 1:
            found *= square
        square *= square
        exponent >>= 1
    return found


def _log(value: float) -> float:
    return math.log(value) / math.log(RATIO)


CPU_BUCKETS = buckets(1024, 0.025)
"""Cores."""
MEMORY_BUCKETS = buckets(1 << 41, 5 << 20)
"""Bytes."""


class Histogram:
    """Weight by bucket. A sample weighs twice as much as one that is a half-life older.

    ``reference_ns``: unix time at which a sample weighs 1.
    """

    __slots__ = ("buckets", "half_life_ns", "high", "low", "reference_ns", "total", "weights")

    def __init__(self, buckets: Buckets, half_life_ns: int) -> None:
        self.buckets = buckets
        self.half_life_ns = half_life_ns
        self.reference_ns = ZERO_NS
        self.clear()

    def clear(self) -> None:
        self.weights = array("d", bytes(8 * self.buckets.count))
        self.total = 0.0
        self.low = self.buckets.count - 1
        """First bucket that is not empty; the last one while all are."""
        self.high = 0

    @property
    def is_empty(self) -> bool:
        return self.weights[self.low] < EPSILON

    def add(self, value: float, time_ns: int) -> None:
        exponent = self._exponent(time_ns)
        if exponent > MAX_EXPONENT:
            self._rescale(time_ns)
            exponent = self._exponent(time_ns)
        elif exponent < -MAX_EXPONENT:
            # The clock was ahead, by months at least: beside those samples none would count again.
            self.clear()
            self.reference_ns = _rounded(time_ns, self.half_life_ns)
            exponent = self._exponent(time_ns)
        weight = math.exp2(exponent)
        bucket = self.buckets.find(value)
        self.weights[bucket] += weight
        self.total += weight
        if self.weights[bucket] >= EPSILON:
            self.low = min(self.low, bucket)
            self.high = max(self.high, bucket)

    def percentile(self, share: float) -> float:
        """Upper bound of the bucket in which ``share`` of the weight is reached; 0 while empty."""
        if self.is_empty:
            return 0.0
        sums = list(accumulate(self.weights[self.low : self.high]))
        return self.buckets.end(self.low + bisect_left(sums, share * self.total))

    def whole_weights(self, most: int) -> dict[int, int]:
        """Bucket -> weight as a checkpoint has it, scaled so that the largest is ``most``; buckets
        that round to 0 are left out."""
        if self.is_empty:
            return {}
        used = self.weights[self.low : self.high + 1]
        ratio = most / max(used)
        scaled = (math.floor(weight * ratio + 0.5) for weight in used)
        return {bucket: each for bucket, each in enumerate(scaled, self.low) if each}

    def _exponent(self, time_ns: int) -> float:
        return float(time_ns - self.reference_ns) / float(self.half_life_ns)

    def _rescale(self, time_ns: int) -> None:
        """Move the reference to about ``time_ns``, and every weight along."""
        reference_ns = _rounded(time_ns, self.half_life_ns)
        shift = float(self.reference_ns - reference_ns) / float(self.half_life_ns)
        factor = math.ldexp(1.0, math.floor(shift + 0.5))
        for bucket in range(self.low, self.high + 1):
            self.weights[bucket] *= factor
        self.total *= factor
        self.reference_ns = reference_ns
        last = self.buckets.count - 1
        while self.weights[self.low] < EPSILON and self.low < last:
            self.low += 1
        while self.weights[self.high] < EPSILON and self.high > 0:
            self.high -= 1


def _rounded(time_ns: int, step_ns: int) -> int:
    """To the nearest multiple of ``step_ns`` since year 1; halves go up."""
    rest = (time_ns - ZERO_NS) % step_ns
    return time_ns - rest if rest + rest < step_ns else time_ns + step_ns - rest
