"""The store: a hot window in memory, segments behind it, one set of queries over both.

Times are unix milliseconds, windows include both ends. Rounds may come in any order of time: a
clock that is set back or forward changes what a window covers and nothing else. A query sees each
point once, whether it is still in the hot window, already in a segment, or both. The exception:
after the clock was set back by more than a minute, a question about the last minutes is answered
from the hot window, without what the wrong clock wrote before.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import msgspec

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb.aggregates import AggregateResult, Pool, summarise_column
from koordlet.tsdb.archive import Archive
from koordlet.tsdb.block import NAN, drop_infinite
from koordlet.tsdb.catalog import NO_COLUMN, Catalog
from koordlet.tsdb.coarse import StoppedError
from koordlet.tsdb.files import DiskFiles, Files
from koordlet.tsdb.frame import GROUP_COLUMNS, Key, Labels
from koordlet.tsdb.history import Found, Points, has_rows, join, read_history
from koordlet.tsdb.hot import HotWindow
from koordlet.tsdb.lanes import quantise
from koordlet.tsdb.spool import frame_of, preload

_SPARE_ROWS = 8  # so that a window of exactly the hot length, both ends included, stays hot
_LONGEST_CUT_MS = 30_000
"""Rounds are written in stretches of this or less: a kill then loses less than a minute, also
when the worker comes late."""
_FOREVER_MS = 1 << 62
_GAP = array("f", [NAN]).tobytes()


class StoreStatus(msgspec.Struct, frozen=True):
    """``mode`` is "disk" or "memory", ``why`` the reason for memory. ``oldest_ms`` and
    ``newest_ms``: the times that any series can be asked for, None while the store is empty."""

    mode: str
    why: str
    series: int
    segments: int
    bytes_on_disk: int
    bytes_in_memory: int
    damaged: tuple[str, ...]
    damage_count: int
    oldest_ms: int | None
    newest_ms: int | None
    lost_rounds: int
    """Rounds that left the hot window before they were written."""
    refused_samples: int
    """Infinite values, and samples of series that are released or beyond the limit."""


class Rounds(NamedTuple):
    """``appended``: since the start, with those that were in memory then. ``newest_ms``: time of
    the newest, 0 before the first. ``filled``: rounds that went into one of the same millisecond.
    """

    appended: int
    newest_ms: int
    filled: int


class Store:
    """Every method may be called from any thread. ``flush``, ``maintain`` and ``close`` do file
    I/O and are for a worker thread; the others stay in memory unless asked for a time before the
    hot window."""

    def __init__(
        self,
        path: str | None,
        *,
        hot_window_s: float = 300,
        step_s: float = 1.0,
        retention_s: float = 43200,
        max_bytes: int = 100 << 20,
        coarse_step_s: int = 60,
        files: Files | None = None,
    ) -> None:
        """``path`` None keeps everything in memory. ``step_s`` is the usual time between rounds:
        with ``hot_window_s`` (at least a coarse step, so that rounds are written before they
        leave) it gives the rows of the hot window; rounds that come more often shorten it.
        ``retention_s`` and ``max_bytes`` bound what is on disk; a quarter of the bytes is for
        coarse history, which is kept 14 times as long. ``files`` replaces the directory.

        Never raises for a bad disk or bad files: ``status`` tells.
        """
        self._lock = threading.RLock()
        self._worker = threading.Lock()
        self._catalog = Catalog()
        rows = math.ceil(max(hot_window_s, coarse_step_s) / step_s) + _SPARE_ROWS
        self._hot = HotWindow(rows)
        self._claimed_seq = 0
        self._lost_rounds = 0
        self._refused = 0
        self._filled = 0
        self._step_ms = coarse_step_s * 1000
        self._cuts = math.ceil(self._step_ms / _LONGEST_CUT_MS)
        disk = files if files is not None or path is None else DiskFiles(path)
        self._archive = Archive(
            disk,
            max_bytes=max_bytes,
            retention_ms=int(retention_s * 1000),
            coarse_step_ms=coarse_step_s * 1000,
        )
        preload(self._archive, self._hot, self._catalog, int(hot_window_s * 1000))
        self._claimed_seq = self._hot.next_seq

    # Series

    def series(self, kind: str, labels: Labels) -> int:
        """Id of the series, stable until it is released. Asking again gives the same id.

        Beyond the limit of series the id is one that drops its samples.
        """
        with self._lock:
            column = self._catalog.intern(kind, labels, self._hot.oldest_seq)
            while self._hot.columns < self._catalog.columns:
                self._hot.grow()
            return column

    def known(self, kind: str, labels: Labels) -> int | None:
        """Id of the series, None where there is none: unlike ``series`` this makes none, and
        unlike ``select`` it needs no search."""
        with self._lock:
            return self._catalog.look_up(kind, labels)

    def release(self, series_id: int) -> None:
        """The object is gone. The samples stay; the id must not be appended to any more."""
        with self._lock:
            self._catalog.release(series_id, self._hot.next_seq)

    def select(self, kind: str, match: Mapping[str, str]) -> list[int]:
        """Ids of the series of ``kind`` with these labels; fewer labels match more series.
        Released series count as long as the hot window holds their samples."""
        with self._lock:
            return self._catalog.select(kind, match)

    def describe(self, series_id: int) -> Key:
        """Kind, and labels sorted by name. Raises KeyError for an id not in use."""
        with self._lock:
            key = self._catalog.find(series_id)
        if key is None:
            raise KeyError(f"no series has id {series_id}")
        return key

    # Samples

    def append(self, time_ms: int, ids: Sequence[int], values: Sequence[float]) -> None:
        """Add one round, all of it or (ValueError, TypeError, IndexError) nothing.

        A series without a value in the round has a gap there; NaN is a gap too. A second round
        for the same millisecond fills the gaps of the first. An infinite value and a sample of a
        released series are dropped and counted.
        """
        if len(ids) != len(values):
            raise ValueError(f"{len(ids)} ids, but {len(values)} values")
        # As the disk keeps them: what is asked again later, after a restart or of the segments,
        # gets the answer that it got the first time.
        packed = quantise(array("f", values))
        with self._lock:
            total = sum(packed)
            if total - total != 0:
                self._refused += drop_infinite(packed)
            row = array("f", [NAN]) * (self._hot.columns + 1)  # the last one takes NO_COLUMN
            for column, value in zip(ids, packed, strict=True):
                row[column] = value
            self._refused += row[-1] == row[-1]
            for column in self._catalog.silent():
                self._refused += row[column] == row[column]
                row[column] = NAN
            newest = self._hot.next_seq - 1
            if newest >= self._claimed_seq and self._hot.time_of(newest) == time_ms:
                self._filled += 1
                self._hot.fill([column for column in ids if column != NO_COLUMN], row)
            else:
                row.pop()
                self._hot.append(time_ms, row)

    @property
    def rounds(self) -> Rounds:
        """What has been appended so far."""
        with self._lock:
            count = self._hot.next_seq
            return Rounds(count, self._hot.time_of(count - 1) if count else 0, self._filled)

    # Queries

    def last(
        self, series_id: int, since_ms: int, until_ms: int | None = None
    ) -> tuple[int, float] | None:
        """Time and value of the newest sample in the window; None when there is none."""
        end_ms = _FOREVER_MS if until_ms is None else until_ms
        with self._lock:
            if (
                self._hot.ordered
                and self._hot.covers(since_ms)
                and 0 <= series_id < self._catalog.columns
            ):
                return self._hot.last(series_id, since_ms, end_ms)
        result = self.aggregate((series_id,), since_ms, end_ms, Aggregate.LAST)
        return None if result is None else (result.last_ms, result.value)

    def newest(self, kind: str, since_ms: int, until_ms: int) -> list[tuple[Labels, int, float]]:
        """Labels of each series of ``kind`` that has a sample in the window, and time and value of
        its newest one."""
        with self._lock:
            has_all = self._hot.ordered and self._hot.covers(since_ms)
            last = self._hot.last if has_all else self.last
            return [
                (labels, *found)
                for column, labels in self._catalog.of_kind(kind)
                if (found := last(column, since_ms, until_ms)) is not None
            ]

    def aggregate(
        self, ids: Sequence[int], start_ms: int, end_ms: int, how: Aggregate
    ) -> AggregateResult | None:
        """All points of all the series as one set; None when there is none, except for a count."""
        return self.aggregates(ids, start_ms, end_ms, (how,))[0]

    def aggregates(
        self, ids: Sequence[int], start_ms: int, end_ms: int, hows: Sequence[Aggregate]
    ) -> list[AggregateResult | None]:
        """Several aggregates of one window from one pass over it."""
        pool = Pool(hows)
        self._pool(ids, [pool] * len(ids), start_ms, end_ms)
        return [pool.result(how, start_ms) for how in hows]

    def aggregate_each(
        self, ids: Sequence[int], start_ms: int, end_ms: int, how: Aggregate
    ) -> list[float | None]:
        """One aggregate per series, in the order of ``ids``; None for an empty one, 0 for an
        empty count."""
        with self._lock:
            hot = self._hot
            if hot.ordered and not self._needs_archive(start_ms, end_ms):
                runs = hot.window(start_ms, end_ms)
                return [summarise_column(hot.column(column, runs), how) for column in ids]
        pools = [Pool((how,)) for _ in ids]
        self._pool(ids, pools, start_ms, end_ms)
        results = [pool.result(how, start_ms) for pool in pools]
        return [None if result is None else result.value for result in results]

    def _needs_archive(self, start_ms: int, end_ms: int) -> bool:
        """Segments hold the same rows as the hot window and older ones: they are not asked
        where it has all, which is what decisions do, some thousand times a second."""
        if self._hot.covers(start_ms):
            return False
        return has_rows(self._archive, start_ms, end_ms, self._hot.oldest_seq)

    def _pool(self, ids: Sequence[int], pools: Sequence[Pool], start_ms: int, end_ms: int) -> None:
        with self._lock:
            hot_seq = self._hot.oldest_seq
            beyond = self._needs_archive(start_ms, end_ms)
            runs = self._hot.window(start_ms, end_ms)
            times = self._hot.times(runs)
            targets: list[tuple[Key, Pool]] = []
            for column, pool in zip(ids, pools, strict=True):
                key = self._catalog.find(column)
                if key is not None:
                    targets.append((key, pool))
                    pool.add(times, self._hot.column(column, runs))
        if not beyond:
            return

        def resolve(dictionary: Mapping[Key, int]) -> list[tuple[Pool, int]]:
            return [(pool, dictionary[key]) for key, pool in targets if key in dictionary]

        for found in read_history(self._archive, resolve, start_ms, end_ms, hot_seq):
            found.add_to(found.tag)

    def points(self, series_id: int, start_ms: int, end_ms: int) -> Points:
        """The samples of the window in order of time, where they are no longer held at full
        resolution the mean of each coarse step at its start."""
        kind, labels = self.describe(series_id)
        found = self.history(kind, dict(labels), start_ms, end_ms)
        return found.get(labels, Points(array("q"), array("f")))

    def history(
        self, kind: str, match: Mapping[str, str], start_ms: int, end_ms: int
    ) -> dict[Labels, Points]:
        """Like ``points``, for every series of ``kind`` that ever had these labels, also those
        of objects long gone."""
        parts: dict[Labels, list[tuple[array[int], array[float]]]] = {}
        for found in self.scan(kind, match, start_ms, end_ms):
            parts.setdefault(found.tag, []).append((found.times, found.samples()))
        joined = {labels: join(each) for labels, each in parts.items()}
        return {labels: points for labels, points in joined.items() if points.times}

    def scan(
        self,
        kind: str,
        match: Mapping[str, str],
        start_ms: int,
        end_ms: int,
        pause: Callable[[], None] = lambda: None,
    ) -> Iterator[Found[Labels]]:
        """The same piece by piece: a series in a frame, then the next one. Nothing that is still
        to come is older than the last ``first_ms``. ``pause`` is called where it may take long."""
        pairs = frozenset(match.items())
        hot, recent = self._hot, []
        with self._lock:
            # A row that leaves the ring meanwhile is read from its segment.
            hot_seq = hot.oldest_seq + (_SPARE_ROWS // 2 if hot.next_seq > hot.rows else 0)
            runs = [(max(seq, hot_seq), end) for seq, end in hot.window(start_ms, end_ms)]
            runs = [(seq, end) for seq, end in runs if seq < end]
            times = hot.times(runs)
            ids = self._catalog.select(kind, match)
        first_ms = min(times, default=_FOREVER_MS)
        for start in range(0, len(ids), GROUP_COLUMNS):
            pause()
            with self._lock:
                for column in ids[start : start + GROUP_COLUMNS]:
                    key = self._catalog.find(column)
                    if key is not None and key[0] == kind:
                        values = [hot.column(column, runs)]
                        recent.append(Found(key[1], times, values, first_ms))

        def resolve(dictionary: Mapping[Key, int]) -> list[tuple[Labels, int]]:
            pause()
            return [
                (labels, column)
                for (each, labels), column in dictionary.items()
                if each == kind and pairs.issubset(labels)
            ]

        for found in read_history(self._archive, resolve, start_ms, end_ms, hot_seq):
            if found.first_ms > first_ms:  # a clock was set back
                yield from recent
                recent.clear()
            pause()
            yield found
        yield from recent

    # Upkeep

    def maintain(self, now_ms: int) -> None:
        """Write the rounds of completed stretches, drop what is too old, try a failed disk
        again. For a worker thread, each second or few; with nothing to do it takes microseconds.
        """
        with self._worker, suppress(StoppedError):
            self._write(now_ms, everything=False)
            self._archive.retain(now_ms)

    def flush(self, now_ms: int) -> None:
        """Write every round there is."""
        with self._worker:
            self._write(now_ms, everything=True)

    def close(self) -> None:
        """Write every round, and make a ``maintain`` in another thread end soon. The store stays
        readable. Where room for the last rounds would take long to make, they are lost."""
        self._archive.stopping.set()
        with self._lock:
            now_ms = self._hot.time_of(self._hot.next_seq - 1)
        self.flush(now_ms)

    def _write(self, now_ms: int, *, everything: bool) -> None:
        for first, end in self._claim(now_ms, everything):
            frame = frame_of(self._hot, self._catalog, self._lock, first, end)
            try:
                written = frame == b"" or (
                    frame is not None and self._archive.write(frame, first, now_ms)
                )
            except StoppedError:
                written = False
            if not written:
                self._lost_rounds += end - first

    def _cut_of(self, time_ms: int) -> int:
        """Number of the stretch of time, coarse steps being divided evenly."""
        return time_ms * self._cuts // self._step_ms

    def _claim(self, now_ms: int, everything: bool) -> list[tuple[int, int]]:
        """Stretches of unwritten rows that go to disk together. The one that is still going on
        is left out unless ``everything``."""
        with self._lock:
            hot = self._hot
            self._lost_rounds += max(hot.oldest_seq - self._claimed_seq, 0)
            first = max(hot.oldest_seq, self._claimed_seq)
            cuts = [
                seq
                for seq in range(first + 1, hot.next_seq)
                if self._cut_of(hot.time_of(seq)) != self._cut_of(hot.time_of(seq - 1))
            ]
            newest = hot.next_seq - 1
            if newest >= first and (
                everything or self._cut_of(hot.time_of(newest)) != self._cut_of(now_ms)
            ):
                cuts.append(hot.next_seq)
            stretches = list(pairwise((first, *cuts)))
            self._claimed_seq = max([first, *cuts])
            return stretches

    @property
    def coarse_step_ms(self) -> int:
        return self._step_ms

    def status(self) -> StoreStatus:
        with self._lock:
            archive = self._archive
            seqs = range(self._hot.oldest_seq, self._hot.next_seq)
            times = [self._hot.time_of(seq) for seq in seqs]
            segments = archive.segments
            frames = [frame for segment in segments for frame, _ in segment.frames]
            return StoreStatus(
                mode="disk" if archive.on_disk else "memory",
                why=archive.why,
                series=len(self._catalog),
                segments=len(segments),
                bytes_on_disk=archive.bytes_in(disk=True),
                bytes_in_memory=self._hot.bytes_used + archive.bytes_in(disk=False),
                damaged=archive.damages,
                damage_count=archive.damage_count,
                oldest_ms=min([*times, *(frame.first_ms for frame in frames)], default=None),
                newest_ms=max([*times, *(frame.last_ms for frame in frames)], default=None),
                lost_rounds=self._lost_rounds,
                refused_samples=self._refused,
            )
