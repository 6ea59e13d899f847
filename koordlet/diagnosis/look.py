"""The store as a diagnosis reads it: the newest values at an instant, or the worst around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
AROUND_S = 30.0
"""Seconds before and after an instant of the past in which somebody suffered who is said to suffer
then."""
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
    """``until``: unix seconds, the end of the time that is looked at."""

    store: Store
    until: float
    window_s: float = FRESH_S
    how: Aggregate = Aggregate.LAST
    pause: Pause = no_pause

    def of(self, metric: Metric, match: Mapping[str, str]) -> dict[tuple[str, ...], float]:
        """Return it by the values of its labels. Raises InvalidError."""
        return _by_labels(metric, self._series(metric, match))

    def of_one_round(
        self, metric: Metric, match: Mapping[str, str]
    ) -> dict[tuple[str, ...], float]:
        """The same; of the newest values only those that are as new as the newest of all: a series
        that has no sample of that round is over. Raises InvalidError."""
        found = self._series(metric, match)
        if self.how is Aggregate.LAST:
            newest_s = min((each.age_s for each in found), default=0.0)
            found = tuple(each for each in found if each.age_s <= newest_s + _ROUND_S)
        return _by_labels(metric, found)

    def _series(self, metric: Metric, match: Mapping[str, str]) -> tuple[SeriesView, ...]:
        window = series.window_of(self.window_s, self.until)
        return series.summary(self.store, metric, match, window, self.how, self.pause).series

    def query(
        self, kind: str, match: Mapping[str, str], window_s: float, aggregate: str, until: float
    ) -> QueryView:
        """Series of who is who alone."""
        window = series.window_of(window_s, until)
        how = series.aggregate_of(aggregate)
        return series.summary(self.store, _IDENTITY[kind], match, window, how, self.pause)


def _by_labels(metric: Metric, found: Iterable[SeriesView]) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels[name] for name in metric.labels): each.value for each in found}


def now(store: Store, time: float, pause: Pause = no_pause) -> Look:
    return Look(store, time, pause=pause)


def around(store: Store, time: float, pause: Pause = no_pause) -> Look:
    """The worst of that half minute and the one before it."""
    return Look(store, time + AROUND_S, 2 * AROUND_S, Aggregate.MAX, pause)
