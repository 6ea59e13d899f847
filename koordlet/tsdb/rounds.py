"""The rounds of a store on disk, in the order in which they were written. Reads only."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import NamedTuple

from koordlet.tsdb import lanes
from koordlet.tsdb.archive import Segment
from koordlet.tsdb.files import Files, Read
from koordlet.tsdb.frame import (
    DamagedError,
    Frame,
    Key,
    parse_dictionary,
    read_directory,
    read_group,
)

Damaged = Callable[[Segment, str], None]


class ReadOnly:
    """``Files`` of somebody else."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def prepare(self) -> None:
        return None

    def list(self) -> list[tuple[str, int]]:
        return self._files.list()

    def append(self, name: str, data: bytes) -> None:
        raise _read_only(name)

    def sync(self, name: str) -> None:
        raise _read_only(name)

    def rename(self, old: str, new: str) -> None:
        raise _read_only(old)

    def unlink(self, name: str) -> None:
        raise _read_only(name)

    def reader(self, name: str) -> AbstractContextManager[Read]:
        return self._files.reader(name)


def _read_only(name: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), name)


class Place(NamedTuple):
    """A round: number of its frame, and of its row there."""

    frame: int
    row: int


class Content(NamedTuple):
    """A frame in memory. ``groups``: columns of as many series each, all rows of one after the
    other; the last round of ``times`` is the last row."""

    times: Sequence[int]
    keys: tuple[Key, ...]
    groups: tuple[array[float], ...]

    def row(self, row: int) -> array[float]:
        """The values of one round, NaN in gaps, in the order of ``keys``."""
        rows = len(self.times)
        return array("f", chain.from_iterable(group[row::rows] for group in self.groups))


_NOTHING = Content((), (), ())


class Rounds:
    """``frames``: those of full resolution. A frame that is damaged, or was deleted meanwhile, has
    no times and no values; ``damaged`` hears of it."""

    def __init__(self, segments: Sequence[Segment], damaged: Damaged) -> None:
        self.frames: list[tuple[Segment, Frame]] = [
            (segment, frame)
            for segment in segments
            if not segment.coarse
            for frame, _ in segment.frames
        ]
        self._damaged = damaged
        self._times: dict[int, Sequence[int]] = {}
        self._content: tuple[int, Content] = (-1, _NOTHING)

    def find(self, start: Place, rounds: int, time_ms: int) -> Place | None:
        """The round that is the ``rounds``-th from ``start`` on, if it is of that time, else the
        next that is."""
        found = self.forward(start, rounds - 1) if rounds else None
        if found is not None and self.time_of(found) == time_ms:
            return found
        for number in range(start.frame, len(self.frames)):
            _, frame = self.frames[number]
            if frame.first_ms <= time_ms <= frame.last_ms:
                times = self.times_of(number)
                for row in range(start.row if number == start.frame else 0, len(times)):
                    if times[row] == time_ms:
                        return Place(number, row)
        return None

    def forward(self, place: Place, rows: int) -> Place | None:
        frame, row = place.frame, place.row + rows
        while frame < len(self.frames):
            size = self.frames[frame][1].rows
            if row < size:
                return Place(frame, row)
            frame, row = frame + 1, row - size
        return None

    def back(self, place: Place, rows: int) -> Place:
        """``rows`` before, or the first round; with -1 the one after."""
        if rows < 0:
            return self.forward(place, -rows) or Place(len(self.frames), 0)
        frame, row = place.frame, place.row - rows
        while row < 0 and frame > 0:
            frame -= 1
            row += self.frames[frame][1].rows
        return Place(frame, max(row, 0))

    def time_of(self, place: Place) -> int | None:
        times = self.times_of(place.frame)
        return times[place.row] if place.row < len(times) else None

    def times_of(self, number: int) -> Sequence[int]:
        if number not in self._times:
            if len(self._times) > 8:  # looked at one after the other, rarely ahead
                self._times.clear()
            segment, frame = self.frames[number]
            times: Sequence[int] = ()
            try:
                with segment.files.reader(segment.name) as read:
                    times = read_directory(read, frame).times
            except (DamagedError, OSError) as error:
                self._damaged(segment, f"byte {frame.offset}: {error}")
            self._times[number] = times
        return self._times[number]

    def content(self, number: int) -> Content:
        """The last one that was asked for is kept."""
        if self._content[0] != number:
            segment, frame = self.frames[number]
            content = _NOTHING
            try:
                with segment.files.reader(segment.name) as read:
                    content = _content(read, frame)
            except (DamagedError, OSError) as error:
                self._damaged(segment, f"byte {frame.offset}: {error}")
            self._content = number, content
        return self._content[1]


def _content(read: Read, frame: Frame) -> Content:
    """Raises DamagedError, OSError."""
    directory = read_directory(read, frame)
    groups = tuple(
        lanes.unpack(read_group(read, directory, index), frame.rows)
        for index in range(len(directory.groups))
    )
    return Content(directory.times, tuple(parse_dictionary(directory.dictionary)), groups)
