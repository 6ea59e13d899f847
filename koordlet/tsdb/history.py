"""Reading series back from segments, frame by frame."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from koordlet.tsdb.aggregates import Interval, Pool, without_gaps
from koordlet.tsdb.archive import Archive, Segment
from koordlet.tsdb.files import Read
from koordlet.tsdb.frame import (
    GROUP_COLUMNS,
    DamagedError,
    Directory,
    Frame,
    Key,
    column_of,
    parse_dictionary,
    read_directory,
    read_group,
)

Tag = TypeVar("Tag")
Resolve = Callable[[Mapping[Key, int]], list[tuple[Tag, int]]]
"""Which columns of a dictionary are wanted, each with the caller's name for it."""


class Points(NamedTuple):
    times: array[int]
    values: array[float]


def join(parts: Sequence[tuple[array[int], array[float]]]) -> Points:
    """One series in order of time, without its gaps."""
    points = Points(array("q"), array("f"))
    for part in parts:
        times, values = without_gaps(*part)
        points.times.extend(times)
        points.values.extend(values)
    if any(later < earlier for earlier, later in pairwise(points.times)):
        order = sorted(range(len(points.times)), key=points.times.__getitem__)
        return Points(
            array("q", map(points.times.__getitem__, order)),
            array("f", map(points.values.__getitem__, order)),
        )
    return points


class Found(NamedTuple, Generic[Tag]):
    """One series in one frame: its rows inside the window. ``columns`` is one column of samples,
    or the columns of a ``coarse.Interval`` when times are starts of intervals."""

    tag: Tag
    times: array[int]
    columns: list[array[float]]

    def samples(self) -> array[float]:
        """The samples, or the means of the intervals."""
        return self.columns[0 if len(self.columns) == 1 else Interval._fields.index("mean")]

    def add_to(self, pool: Pool) -> None:
        if len(self.columns) == 1:
            pool.add(self.times, self.columns[0])
            return
        for time_ms, *stats in zip(self.times, *self.columns, strict=True):
            interval = Interval(*stats)
            if interval.points > 0:
                pool.add_interval(time_ms, interval)


def has_rows(archive: Archive, start_ms: int, end_ms: int, hot_seq: int) -> bool:
    """Whether a segment holds rows in the window that the hot window no longer has."""
    return any(
        _older_rows(frame, seq, hot_seq) and frame.last_ms >= start_ms and frame.first_ms <= end_ms
        for segment in archive.segments
        for frame, seq in segment.frames
    )


def _older_rows(frame: Frame, first_seq: int, hot_seq: int) -> int:
    """How many of the frame's first rows have left the hot window, which begins at ``hot_seq``."""
    return max(min(frame.rows, hot_seq - first_seq), 0)


def read_history(
    archive: Archive, resolve: Resolve[Tag], start_ms: int, end_ms: int, hot_seq: int
) -> Iterator[Found[Tag]]:
    """Rows with start_ms <= time <= end_ms that have left the hot window, oldest segment first.

    Damage costs the frame or group it is in, and is noted at the archive. A segment that expires
    while it is read is passed over.
    """
    dictionary = b""
    wanted: list[tuple[Tag, int]] = []
    for segment in archive.segments:
        frames = [
            (frame, rows)
            for frame, seq in segment.frames[:]
            if frame.last_ms >= start_ms
            and frame.first_ms <= end_ms
            and (rows := _older_rows(frame, seq, hot_seq))
        ]
        if not frames:
            continue
        try:
            with segment.files.reader(segment.name) as read:
                for frame, rows in frames:
                    source = _Source(archive, segment, frame, read)
                    directory = source.directory()
                    if directory is None:
                        continue
                    if directory.dictionary != dictionary:  # seldom: objects came or went
                        dictionary = directory.dictionary
                        wanted = resolve(parse_dictionary(dictionary))
                    inside = [
                        row for row in range(rows) if start_ms <= directory.times[row] <= end_ms
                    ]
                    for tag, column in wanted:
                        columns = source.columns(directory, column)
                        if columns is not None:
                            yield Found(
                                tag,
                                array("q", map(directory.times.__getitem__, inside)),
                                [array("f", map(each.__getitem__, inside)) for each in columns],
                            )
        except FileNotFoundError:
            continue


class _Source:
    """One frame while it is read."""

    def __init__(self, archive: Archive, segment: Segment, frame: Frame, read: Read) -> None:
        self._archive = archive
        self._segment = segment
        self._frame = frame
        self._read = read
        self._planes: dict[int, bytes | None] = {}

    def _note(self, error: DamagedError | OSError) -> None:
        self._archive.note_damage(self._segment, f"byte {self._frame.offset}: {error}")

    def directory(self) -> Directory | None:
        try:
            return read_directory(self._read, self._frame)
        except (DamagedError, OSError) as error:
            self._note(error)
            return None

    def columns(self, directory: Directory, series: int) -> list[array[float]] | None:
        """All statistics of one series, or None where one of them is damaged."""
        found = []
        for stat in range(self._frame.stats):
            column = stat * self._frame.series + series
            group = column // GROUP_COLUMNS
            if group not in self._planes:
                self._planes[group] = self._group(directory, group)
            planes = self._planes[group]
            if planes is None:
                return None
            found.append(column_of(planes, self._frame.rows, column % GROUP_COLUMNS))
        return found

    def _group(self, directory: Directory, group: int) -> bytes | None:
        try:
            return read_group(self._read, directory, group)
        except (DamagedError, OSError) as error:
            self._note(error)
            return None
