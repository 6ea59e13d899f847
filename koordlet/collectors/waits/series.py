"""The series of a matrix of waits: a culprit that stops stands at 0 for a while, then goes."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.collectors.waits.figures import Row, worst
from koordlet.collectors.waits.groups import Group
from koordlet.decision.metrics import Metric

LEAST_MS_PER_S = 0.05
"""Smaller cells count in the sum alone."""
KEEP_S = 60.0
"""A culprit is at 0 for so long before its series ends: whoever asks for a mean of the last minute
must not see its old values alone."""


class MatrixSeries:
    """``cells``: labels victim, culprit, kind of culprit. ``sums``: label victim; all its waits of
    one resource."""

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
                if value >= LEAST_MS_PER_S:
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
