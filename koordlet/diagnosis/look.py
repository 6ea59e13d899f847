"""The store as a diagnosis reads it at an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koordlet.admin import series
from koordlet.admin.ranges import QueryView, SeriesView
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.kernel.background import Pause, no_pause
from koordlet.tsdb.store import Store

FRESH_S = 25.0
"""A value may be so old: pressure and waits are collected every 10 s, and a round may be missed."""
_ROUND_S = 0.5
_MEAN_S = 10.0
"""Waits are looked at for so long, as the pressure of the kernel: those of a second say little."""
AROUND_S = 60.0
"""Seconds before and after an instant of the past in which somebody suffered who is said to suffer
then. Who reads 03:12 somewhere means any second of that minute."""
_IDENTITY = {
    metric.kind: metric
    for metric in (
        k.POD_INFO,
        k.HOST_APPLICATION_INFO,
        k.NODE_CPU_CAPACITY,
        k.NODE_MEMORY_CAPACITY,
    )
}


class Look(NamedTuple):
    """``until``: the instant, in unix seconds."""

    store: Store
    until: float
    pause: Pause = no_pause

    def newest(self, metric: Metric, match: Mapping[str, str]) -> dict[tuple[str, ...], float]:
        """Return it by the values of its labels. Raises InvalidError."""
        found = self._series(metric, match, FRESH_S, Aggregate.LAST)
        return {_labels(metric, each): each.value for each in found}

    def mean(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """The same, of some seconds. Raises InvalidError."""
        found = self._series(metric, {}, _MEAN_S, Aggregate.AVG)
        return {_labels(metric, each): each.value for each in found}

    def waits(self, metric: Metric, match: Mapping[str, str]) -> dict[tuple[str, ...], float]:
        """The mean of some seconds, in which one without a sample waited for nothing, by the
        values of the labels. A series that has no sample of the newest round is over. Raises
        InvalidError."""
        found = self._series(metric, match, _MEAN_S, Aggregate.AVG)
        newest_s = min((each.age_s for each in found), default=0.0)
        rounds = max((each.count for each in found), default=1)
        return {
            _labels(metric, each): each.value * each.count / rounds
            for each in found
            if each.age_s <= newest_s + _ROUND_S
        }

    def _series(
        self, metric: Metric, match: Mapping[str, str], window_s: float, how: Aggregate
    ) -> tuple[SeriesView, ...]:
        window = series.window_of(window_s, self.until)
        return series.summary(self.store, metric, match, window, how, self.pause).series

    def query(
        self, kind: str, match: Mapping[str, str], window_s: float, aggregate: str, until: float
    ) -> QueryView:
        """Series of who is who alone."""
        window = series.window_of(window_s, until)
        how = series.aggregate_of(aggregate)
        return series.summary(self.store, _IDENTITY[kind], match, window, how, self.pause)


def _labels(metric: Metric, found: SeriesView) -> tuple[str, ...]:
    return tuple(found.labels[name] for name in metric.labels)


def now(store: Store, time: float, pause: Pause = no_pause) -> Look:
    return Look(store, time, pause)


def around(store: Store, time: float, pause: Pause = no_pause) -> tuple[Look, ...]:
    """Looks at the time before and after an instant, the nearest first."""
    count = int(AROUND_S / _MEAN_S)
    rounds = sorted(range(1 - count, count + 1), key=abs)
    return tuple(Look(store, time + each * _MEAN_S, pause) for each in rounds)
