"""Series that exist as long as somebody has something to say in them."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.collectors.waits.figures import QUANTILES, Row, quantile_us
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.collectors.waits.series import MatrixSeries
from koordlet.decision.metrics import Metric, WaitMetrics

Labels = tuple[str, ...]


class ValueSeries:
    """One series for each set of labels; those that a round leaves out end."""

    def __init__(self, store: SeriesStore, metric: Metric) -> None:
        self._store = store
        self._metric = metric
        self._ids: dict[Labels, int] = {}

    def add(self, round_: Round, found: Mapping[Labels, float]) -> None:
        self.keep(found)
        for labels, value in found.items():
            if labels not in self._ids:
                self._ids[labels] = series_of(self._store, self._metric, labels)
            round_.ids.append(self._ids[labels])
            round_.values.append(value)

    def keep(self, wanted: Mapping[Labels, object]) -> None:
        for labels in self._ids.keys() - wanted.keys():
            self._store.release(self._ids.pop(labels))

    def close(self) -> None:
        self.keep({})


class QuantileSeries:
    """Last label: the quantile. No sample where nothing was counted."""

    def __init__(self, store: SeriesStore, metric: Metric) -> None:
        self._values = ValueSeries(store, metric)

    def add(self, round_: Round, slots: Mapping[Labels, tuple[int, ...]]) -> None:
        found = {}
        for labels, counts in slots.items():
            for quantile, label in QUANTILES:
                value = quantile_us(counts, quantile)
                if value is not None:
                    found[*labels, label] = value
        self._values.add(round_, found)

    def close(self) -> None:
        self._values.close()


class Matrices:
    """Of pods and of applications."""

    def __init__(self, store: SeriesStore, waits: WaitMetrics) -> None:
        self._of = {
            Kind.POD: MatrixSeries(store, waits.pod, waits.pod_total),
            Kind.APPLICATION: MatrixSeries(store, waits.application, waits.app_total),
        }

    def add(self, round_: Round, rows: Mapping[Group, Row]) -> None:
        for kind, series in self._of.items():
            series.add(
                round_, {group.name: row for group, row in rows.items() if group.kind is kind}
            )

    def close(self) -> None:
        for series in self._of.values():
            series.close()
