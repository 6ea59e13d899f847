"""The numbers behind the metrics page, by the table of families in ``metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koordlet.decision.family import Family, Labels
from koordlet.decision.plan import Gauge
from koordlet.report.metrics import FAMILIES


@dataclass
class Histogram:
    """``counts[i]`` observations were at most ``buckets[i]`` and above the one before; the last
    is for those above all."""

    counts: list[int]
    sum: float = 0.0


@dataclass
class Metrics:
    """The numbers of one daemon. Every call raises ValueError when the label values do not fit
    the family. Not for use from several threads."""

    node: str
    scalars: dict[Family, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[Family, dict[Labels, Histogram]] = field(default_factory=dict)
    families: dict[str, Family] = field(default_factory=lambda: dict(FAMILIES))
    _published: dict[str, set[tuple[Family, Labels]]] = field(default_factory=dict)

    def declare(self, families: Iterable[Family]) -> None:
        """Of a part of another package. A family that is there already stays what it is."""
        for family in families:
            self.families.setdefault(family.name, family)

    def set(self, family: Family, value: float, labels: Labels = ()) -> None:
        """A gauge; or a counter whose total somebody else keeps."""
        self._checked(family, labels)
        self.scalars.setdefault(family, {})[labels] = value

    def inc(self, family: Family, labels: Labels = (), by: float = 1.0) -> None:
        self._checked(family, labels)
        series = self.scalars.setdefault(family, {})
        series[labels] = series.get(labels, 0.0) + by

    def observe(self, family: Family, value: float, labels: Labels = ()) -> None:
        self._checked(family, labels)
        series = self.histograms.setdefault(family, {})
        histogram = series.get(labels)
        if histogram is None:
            histogram = series[labels] = Histogram([0] * (len(family.buckets) + 1))
        histogram.counts[bisect_left(family.buckets, value)] += 1
        histogram.sum += value

    def replace(self, family: Family, samples: Mapping[Labels, float]) -> None:
        """All samples of ``family``: what is not in ``samples`` disappears."""
        for labels in samples:
            self._checked(family, labels)
        self.scalars[family] = dict(samples)

    def publish(self, owner: str, gauges: Iterable[Gauge]) -> None:
        """Figures of a decision. What the owner published last time and no longer does
        disappears: a mechanism given up must not go on showing its last value."""
        new: dict[tuple[Family, Labels], float] = {}
        for gauge in gauges:
            self._checked(gauge.family, gauge.labels)
            if self.families.get(gauge.family.name) is not gauge.family:
                raise ValueError(
                    f"{owner} publishes {gauge.family.name}, which it does not declare"
                )
            new[gauge.family, gauge.labels] = gauge.value
        for family, labels in self._published.get(owner, set()) - new.keys():
            self.scalars[family].pop(labels, None)
        for (family, labels), value in new.items():
            self.set(family, value, labels)
        self._published[owner] = set(new)

    @staticmethod
    def _checked(family: Family, labels: Labels) -> None:
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name} has labels {family.labels}, not {labels}")
