"""How good predictions were: each waits until its hour has passed, and is compared with the peak.

A peak is the highest sample of that hour, so it is made of what models learn from. What was not
measured misses nothing.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from koordlet.prediction.season import DAY_S, HORIZON_S

STEP_S = 300
"""A prediction is tested each five minutes."""
_STEPS = HORIZON_S // STEP_S
_KEPT = 2 ** (-STEP_S / DAY_S)
"""A test weighs half as much a day later."""

TARGET = 0.02
"""Share of misses that an adaptive margin aims at."""
GAIN = 0.02
MOST_MARGIN = 0.2
"""A load with rare spikes would drive the margin far beyond what the spikes are worth."""


class Model(StrEnum):
    REFERENCE = "reference"
    SEASONAL = "seasonal"


class Score(msgspec.Struct):
    """Of about the last day. ``predicted`` and ``unused`` are sums of amounts: what was predicted,
    and what of it was above the peak."""

    tests: float = 0.0
    misses: float = 0.0
    predicted: float = 0.0
    unused: float = 0.0

    def take(self, predicted: float, peak: float) -> bool:
        """Whether it missed."""
        missed = peak > predicted
        self.tests = self.tests * _KEPT + 1
        self.misses = self.misses * _KEPT + missed
        self.predicted = self.predicted * _KEPT + predicted
        self.unused = self.unused * _KEPT + max(predicted - peak, 0.0)
        return missed

    def add(self, other: Score) -> None:
        self.tests += other.tests
        self.misses += other.misses
        self.predicted += other.predicted
        self.unused += other.unused

    @property
    def miss_ratio(self) -> float | None:
        """Share of the predictions that the peak exceeded; None before the first test."""
        return self.misses / self.tests if self.tests else None

    @property
    def over_ratio(self) -> float | None:
        """Share of what was predicted that nobody used."""
        return self.unused / self.predicted if self.predicted else None


def adapted(margin: float, missed: bool) -> float:
    """A margin that follows its own misses until ``TARGET`` of the predictions miss."""
    return min(max(margin + GAIN * (missed - TARGET), 0.0), MOST_MARGIN)


class BackTest:
    """Of one resource of one subject, for any number of models."""

    __slots__ = ("_peak", "_peaks", "_pending", "_step", "scores")

    def __init__(self) -> None:
        self.scores: dict[Model, Score] = {}
        self._step = 0
        self._peak = 0.0
        self._peaks = array("d")
        self._pending: dict[Model, array[float]] = {}

    def begins(self, time_s: float) -> bool:
        """Whether this sample is the first of its five minutes."""
        return int(time_s // STEP_S) != self._step

    def turn(self, time_s: float) -> Iterator[tuple[Model, bool]]:
        """Ends the five minutes before; which predictions were tested by that, and whether they
        missed. After more than an hour without a sample, or with the clock set back, those that
        wait are dropped."""
        step = int(time_s // STEP_S)
        passed = step - self._step
        self._step = step
        if not 0 < passed <= _STEPS:
            self._peak = 0.0
            self._peaks = array("d")
            self._pending = {}
            return
        for unmeasured in range(passed - 1, -1, -1):
            self._peaks.append(self._peak)
            self._peak = 0.0
            del self._peaks[:-_STEPS]
            for model, waiting in self._pending.items():
                predicted = waiting.pop(0) if len(waiting) == _STEPS else math.nan
                if unmeasured:
                    waiting.append(math.nan)  # nobody was there to predict
                if predicted == predicted:
                    score = self.scores.setdefault(model, Score())
                    yield model, score.take(predicted, max(self._peaks))

    def expect(self, predictions: Mapping[Model, float]) -> None:
        """For the hour that begins now, of exactly these models; NaN makes none. To be called right
        after ``turn``."""
        for model in (self._pending.keys() | self.scores.keys()) - predictions.keys():
            self._pending.pop(model, None)
            self.scores.pop(model, None)
        for model, predicted in predictions.items():
            self._pending.setdefault(model, array("d")).append(predicted)

    def see(self, value: float) -> None:
        self._peak = max(self._peak, value)
