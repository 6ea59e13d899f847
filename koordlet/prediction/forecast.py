"""What predicts one resource of one subject: the reference's histogram, with ``seasonal`` a season
beside it, and their back-test."""

from __future__ import annotations

import math
from typing import NamedTuple

from koordlet.prediction.backtest import BackTest, Model, adapted
from koordlet.prediction.season import Season
from koordlet.protocol.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    SECOND_NS,
    Buckets,
    Histogram,
)

FIRST_MARGIN = 0.1
SEASON_SHARE = 0.98


class Kind(NamedTuple):
    """``share``: the percentile that counts as the peak. ``scale``: amounts in a unit of samples,
    milli-cores in a core, bytes in a byte."""

    name: str
    buckets: Buckets
    share: float
    scale: int


CPU = Kind("cpu", CPU_BUCKETS, 0.95, 1000)
MEMORY = Kind("memory", MEMORY_BUCKETS, 0.98, 1)


class Rule(NamedTuple):
    """How predictions are made at present. ``sample_s``: time between two samples."""

    model: Model = Model.REFERENCE
    safety_margin_percent: int = 10
    sample_s: float = 60.0

    @property
    def models(self) -> tuple[Model, ...]:
        """Those that learn and are tested: the reference always, to compare with."""
        if self.model is Model.REFERENCE:
            return (Model.REFERENCE,)
        return (Model.REFERENCE, self.model)

    def with_margin(self, amount: int) -> int:
        """In the reference's order of operations (docs/reference/metrics.md 4.5)."""
        return int(amount * ((100 + self.safety_margin_percent) / 100))


class Forecast:
    """``season``: while the model is seasonal; ``ahead`` is what it said of the next hour when
    it was last asked (``look_ahead``; ``learn`` asks each five minutes), and ``margin`` how it has
    adapted."""

    __slots__ = ("ahead", "histogram", "kind", "margin", "season", "test")

    def __init__(self, kind: Kind, half_life_s: float) -> None:
        self.kind = kind
        self.histogram = Histogram(kind.buckets, int(half_life_s * SECOND_NS))
        self.season: Season | None = None
        self.margin = FIRST_MARGIN
        self.ahead = 0.0
        self.test = BackTest()

    def learn(self, value: float, time_ns: int, rule: Rule, *, is_tested: bool = True) -> None:
        """A sample in cores or bytes, each ``rule.sample_s``. ``is_tested``: what is predicted at
        this moment is worth a test."""
        time_s = time_ns / SECOND_NS
        if Model.SEASONAL not in rule.models:
            self.season = None
        elif self.season is None:
            self.season = Season(self.kind.buckets)
        if self.test.begins(time_s):
            for model, missed in self.test.turn(time_s):
                if model is Model.SEASONAL:
                    self.margin = adapted(self.margin, missed)
            self.look_ahead(time_s)
            self.test.expect(
                {model: self.peak(model, rule) if is_tested else math.nan for model in rule.models}
            )
        self.test.see(value * self.kind.scale)
        self.histogram.add(value, time_ns)
        if self.season is not None:
            self.season.add(value, time_s, rule.sample_s)

    def look_ahead(self, time_s: float) -> None:
        """Take from the season what it says of the hour after ``time_s`` (unix time)."""
        if self.season is not None:
            self.ahead = self.season.percentile(SEASON_SHARE, time_s)

    def percentile(self) -> int:
        """What the histogram says, without a margin; milli-cores or bytes."""
        return int(self.histogram.percentile(self.kind.share) * self.kind.scale)

    def peak(self, model: Model, rule: Rule) -> int:
        """Predicted peak with its margin, milli-cores or bytes. A seasonal one is never below the
        reference's: whoever uses what is free by night is still there by day."""
        reference = rule.with_margin(self.percentile())
        if model is Model.REFERENCE or self.season is None:
            return reference
        return max(reference, int(int(self.ahead * self.kind.scale) * (1 + self.margin)))
