"""Series of what comes and goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.decision.metrics import NODE_DEVICE_HEALTHY, Metric

if TYPE_CHECKING:
    from koordlet.decision.devices import Health


class Sample(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]
    value: float


class Series:
    """A series without a sample in a round is released: its subject has gone, and its place in the
    store is free for another."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store
        self._ids: dict[tuple[str, tuple[str, ...]], int] = {}

    def write(self, round_: Round, samples: Iterable[Sample]) -> None:
        before, self._ids = self._ids, {}
        for metric, labels, value in samples:
            key = (metric.kind, labels)
            series = before.pop(key, None)
            if series is None:
                series = series_of(self._store, metric, labels)
            self._ids[key] = series
            round_.ids.append(series)
            round_.values.append(value)
        for series in before.values():
            self._store.release(series)

    def close(self) -> None:
        for series in self._ids.values():
            self._store.release(series)
        self._ids = {}


def health_sample(kind: str, minor: int, identity: str, health: Health) -> Iterable[Sample]:
    """None where it is not known."""
    if health.is_known:
        labels = (kind, str(minor), identity)
        yield Sample(NODE_DEVICE_HEALTHY, labels, float(health.is_good))
