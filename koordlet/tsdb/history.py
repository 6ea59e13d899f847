"""Reading series back from segments, frame by frame."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from koordlet.tsdb import lanes
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
N = TypeVar("N", int, float)
_Group: TypeAlias = "bytes | array[float]"
"""Byte planes of which single columns are unpacked, or all columns at once."""
_DICTIONARIES = 4
"""What is collected once a minute is in every other frame, so that a few alternate."""
_CROWD = 8
"""With so many series wanted, unpacking whole groups takes a third of the time."""
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
    or the columns of a ``coarse.Interval`` when times are starts of intervals. ``first_ms``: no row
    of the frame is older. Series of one frame share the object ``times``."""

    tag: Tag
    times: array[int]
    columns: list[array[float]]
    first_ms: int

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
    """Rows with start_ms <= time <= end_ms that have left the hot window, the frame with the oldest
    row first.

    Damage costs the frame or group it is in, and is noted at the archive. A segment that expires
    while it is read is passed over.
    """
    resolved: dict[bytes, list[tuple[Tag, int]]] = {}
    frames = [
        (frame, rows, segment)
        for segment in archive.segments
        for frame, seq in segment.frames[:]
        if frame.last_ms >= start_ms
        and frame.first_ms <= end_ms
        and (rows := _older_rows(frame, seq, hot_seq))
    ]
    frames.sort(key=lambda each: each[0].first_ms)
    for _, group in groupby(frames, key=lambda each: id(each[2])):
        together = list(group)
        segment = together[0][2]
        try:
            with segment.files.reader(segment.name) as read:
                for frame, rows, _ in together:
                    source = _Source(archive, segment, frame, read)
                    directory = source.directory()
                    if directory is None:
                        continue
                    wanted = resolved.get(directory.dictionary)
                    if wanted is None:  # seldom: objects came or went
                        if len(resolved) >= _DICTIONARIES:
                            resolved.clear()
                        wanted = resolve(parse_dictionary(directory.dictionary))
                        resolved[directory.dictionary] = wanted
                    source.is_crowded = len(wanted) >= _CROWD
                    inside = _inside(directory.times[:rows], start_ms, end_ms)
                    times = _taken(directory.times, inside)
                    for tag, column in wanted:
                        columns = source.columns(directory, column)
                        if columns is not None:
                            taken = [_taken(each, inside) for each in columns]
                            yield Found(tag, times, taken, frame.first_ms)
        except FileNotFoundError:
            continue


def _inside(times: array[int], start_ms: int, end_ms: int) -> Sequence[int]:
    """Which rows are in the window; most frames are in it as a whole."""
    if times and start_ms <= min(times) and max(times) <= end_ms:
        return range(len(times))
    return [row for row, time_ms in enumerate(times) if start_ms <= time_ms <= end_ms]


def _taken(column: array[N], rows: Sequence[int]) -> array[N]:
    if isinstance(rows, range):
        return column[: len(rows)]
    return array(column.typecode, map(column.__getitem__, rows))


class _Source:
    """One frame while it is read."""

    def __init__(self, archive: Archive, segment: Segment, frame: Frame, read: Read) -> None:
        self._archive = archive
        self._segment = segment
        self._frame = frame
        self._read = read
        self.is_crowded = False
        self._groups: dict[int, _Group | None] = {}

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
            number, column = divmod(column, GROUP_COLUMNS)
            if number not in self._groups:
                self._groups[number] = self._group(directory, number)
            group = self._groups[number]
            if group is None:
                return None
            rows = self._frame.rows
            if isinstance(group, bytes):
                found.append(column_of(group, rows, column))
            else:
                found.append(group[column * rows : (column + 1) * rows])
        return found

    def _group(self, directory: Directory, number: int) -> _Group | None:
        try:
            planes = read_group(self._read, directory, number)
        except (DamagedError, OSError) as error:
            self._note(error)
            return None
        return lanes.unpack(planes, self._frame.rows) if self.is_crowded else planes
