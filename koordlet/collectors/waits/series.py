"""Series that exist as long as there is something to say in them."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.collectors.waits.figures import QUANTILES, Row, quantile_us, worst
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.decision.metrics import Metric, WaitMetrics

LEAST_CELL_MS_PER_S = 0.05
"""Smaller cells count in the sum alone."""
KEEP_S = 60.0
"""A culprit is at 0 for so long before its series ends: whoever asks for a mean of the last minute
must not see its old values alone."""


Labels = tuple[str, ...]


class MatrixSeries:
    """``cells``: labels victim, culprit, kind of culprit. A culprit that stops stands at
    0 for a while, then goes. ``sums``: label victim; all its waits of one resource."""

    def __init__(self, store: SeriesStore, cells: Metric, sums: Metric) -> None:
        self._store = store
        self._cells = cells
        self._sums = sums
        self._ids: dict[tuple[str, Group], int] = {}
        self._seen_s: dict[tuple[str, Group], float] = {}
        self._sum_ids: dict[str, int] = {}

    def add(self, round_: Round, found: Mapping[str, Row]) -> None:
        """``found``: milliseconds a second by name of the victim; every victim is in it, also one
        that did not wait."""
        wanted: dict[tuple[str, Group], float] = {}
        for victim, row in found.items():
            for culprit, value in worst(row).items():
                if value >= LEAST_CELL_MS_PER_S:
                    wanted[victim, culprit] = value
                    self._seen_s[victim, culprit] = round_.now_s
        for cell, seen_s in tuple(self._seen_s.items()):
            if cell[0] not in found or round_.now_s - seen_s > KEEP_S:
                self._forget(cell)
            else:
                round_.ids.append(self._id(cell))
                round_.values.append(wanted.get(cell, 0.0))
        for victim in self._sum_ids.keys() - found.keys():
            self._store.release(self._sum_ids.pop(victim))
        for victim, row in found.items():
            if victim not in self._sum_ids:
                self._sum_ids[victim] = series_of(self._store, self._sums, (victim,))
            round_.ids.append(self._sum_ids[victim])
            round_.values.append(sum(row.values()))

    def close(self) -> None:
        for series in (*self._ids.values(), *self._sum_ids.values()):
            self._store.release(series)
        self._ids, self._seen_s, self._sum_ids = {}, {}, {}

    def _id(self, cell: tuple[str, Group]) -> int:
        if cell not in self._ids:
            victim, culprit = cell
            labels = (victim, culprit.name, str(culprit.kind))
            self._ids[cell] = series_of(self._store, self._cells, labels)
        return self._ids[cell]

    def _forget(self, cell: tuple[str, Group]) -> None:
        del self._seen_s[cell]
        if cell in self._ids:
            self._store.release(self._ids.pop(cell))


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
    """Waits of pods and of applications; and the busiest processes of culprits."""

    def __init__(self, store: SeriesStore, waits: WaitMetrics) -> None:
        self._of = {
            Kind.POD: MatrixSeries(store, waits.pod, waits.pod_total),
            Kind.APPLICATION: MatrixSeries(store, waits.application, waits.app_total),
        }
        self.busiest = ValueSeries(store, waits.process)

    def add(self, round_: Round, rows: Mapping[Group, Row]) -> None:
        for kind, series in self._of.items():
            series.add(
                round_, {group.name: row for group, row in rows.items() if group.kind is kind}
            )

    def close(self) -> None:
        for series in self._of.values():
            series.close()
        self.busiest.close()
