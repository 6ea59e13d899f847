"""What a daemon has left in its state directory, read without one: after a crash, or a copy of it
on another machine. Nothing there is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from koordlet.admin import series
from koordlet.admin.client import Fault, RefusedError
from koordlet.admin.daemon import InvalidError
from koordlet.admin.model.events import EventView
from koordlet.admin.ranges import QueryView
from koordlet.collectors import CATALOGUE
from koordlet.diagnosis.held import Changed, File
from koordlet.diagnosis.why import Left
from koordlet.engine.events import event_view
from koordlet.history.source import Match, Range, joined
from koordlet.report.decision_search import history
from koordlet.report.decisions import extent_of
from koordlet.tsdb.files import ReadOnlyFiles
from koordlet.tsdb.store import Store

_ENDING = ".kts"


class NothingThereError(RefusedError):
    """No store can be read; the text says where and why."""

    def __init__(self, text: str) -> None:
        super().__init__(Fault.NOT_FOUND, text)


def remains(
    store_dir: str,
    decisions_dir: str,
    coarse_step_s: int = 60,
    changed: Mapping[File, Changed] | None = None,
    notes: tuple[str, ...] = (),
) -> Left:
    """Return what a diagnosis can go by. One of the two directories may be missing. Raises
    NothingThereError."""
    log = extent_of(decisions_dir)
    try:
        source = DiskSource(store_dir, decisions_dir, coarse_step_s)
    except NothingThereError as error:
        if not log.files:
            raise
        return Left(Store(None), log, changed, source=decisions_dir, notes=(*notes, str(error)))
    return source.left(changed, notes)


class DiskSource:
    """Series that a plugin's collector wrote are not known here."""

    def __init__(self, store_dir: str, decisions_dir: str, coarse_step_s: int = 60) -> None:
        """``coarse_step_s``: as the daemon has it configured. Raises NothingThereError."""
        try:
            names = os.listdir(store_dir)
        except OSError as error:
            raise NothingThereError(
                f"{store_dir} cannot be read: {error.strerror or error}; --state-dir names the "
                "state directory of a daemon, in which `tsdb` is"
            ) from None
        if not any(name.endswith(_ENDING) for name in names):
            raise NothingThereError(f"{store_dir} has no segment of a store (*{_ENDING})")
        self.name = store_dir
        self._decisions_dir = decisions_dir
        self._store = Store(None, files=ReadOnlyFiles(store_dir), coarse_step_s=coarse_step_s)

    def left(
        self, changed: Mapping[File, Changed] | None = None, notes: tuple[str, ...] = ()
    ) -> Left:
        log = extent_of(self._decisions_dir)
        return Left(self._store, log, changed, source=self.name, notes=notes)

    @property
    def damaged(self) -> tuple[str, ...]:
        """With file and offset."""
        return self._store.status().damaged

    def query(
        self, kind: str, match: Match, window_s: float, aggregate: str, until: float
    ) -> QueryView:
        try:
            metric = series.metric_of(CATALOGUE, kind, match)
            window = series.window_of(window_s, until)
            how = series.aggregate_of(aggregate)
            return series.summary(self._store, metric, match, window, how)
        except InvalidError as error:
            raise RefusedError(Fault.INVALID, str(error)) from None

    def query_range(
        self, kind: str, match: Match, start: float, end: float, step_s: float, aggregate: str
    ) -> Range:
        try:
            metric = series.metric_of(CATALOGUE, kind, match)
            where = series.grid_of(start, end, step_s)
            how = series.aggregate_of(aggregate)
            return joined(series.over_time(self._store, metric, match, where, how))
        except InvalidError as error:
            raise RefusedError(Fault.INVALID, str(error)) from None

    def events(self, start: float, end: float) -> Iterator[EventView]:
        for record in history(extent_of(self._decisions_dir), start):
            if record.time <= end:
                yield event_view(record)
