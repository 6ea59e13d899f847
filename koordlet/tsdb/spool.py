"""Between the hot window and the segments: rows into a frame, and back after a restart."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from koordlet.tsdb import lanes
from koordlet.tsdb.archive import Archive, Segment
from koordlet.tsdb.block import NAN
from koordlet.tsdb.catalog import NO_COLUMN, Catalog
from koordlet.tsdb.files import Read
from koordlet.tsdb.frame import (
    GROUP_COLUMNS,
    DamagedError,
    Frame,
    Key,
    assemble,
    pack_group,
    parse_dictionary,
    read_directory,
    read_group,
)
from koordlet.tsdb.hot import HotWindow

_GAP = array("f", [NAN]).tobytes()


def frame_of(
    hot: HotWindow,
    catalog: Catalog,
    lock: AbstractContextManager[Any],
    first_seq: int,
    end_seq: int,
) -> bytes | None:
    """The rows [first_seq, end_seq) as a frame; series without a sample in them are left out.

    Takes the lock for a group of columns at a time, so that a round is never kept waiting. None
    when the ring came round and overwrote the rows meanwhile; empty when they hold no sample.
    """
    rows = end_seq - first_seq
    with lock:
        items = catalog.series()
        times = hot.times(hot.runs(first_seq, end_seq))
    keys: list[Key] = []
    columns: list[bytes] = []
    groups: list[bytes] = []
    for start in range(0, len(items), GROUP_COLUMNS):
        with lock:
            if hot.oldest_seq > first_seq:
                return None
            runs = hot.runs(first_seq, end_seq)
            for column, key in items[start : start + GROUP_COLUMNS]:
                floats = hot.column(column, runs).tobytes()
                if floats != _GAP * rows:
                    keys.append(key)
                    columns.append(floats)
        if len(columns) >= GROUP_COLUMNS:
            groups.append(pack_group(b"".join(columns[:GROUP_COLUMNS]), rows))
            del columns[:GROUP_COLUMNS]
    if columns:
        groups.append(pack_group(b"".join(columns), rows))
    return assemble(times, keys, groups) if keys else b""


def preload(archive: Archive, hot: HotWindow, catalog: Catalog, window_ms: int) -> None:
    """Fill the empty hot window with the newest rows of the segments.

    Their series start as released: one that is asked for again goes on in its column, the others
    free theirs when their rows have left the window.
    """
    places = [
        (segment, index) for segment in archive.segments for index in range(len(segment.frames))
    ]
    newest = _newest(places, hot.rows, window_ms)
    older = places[: len(places) - len(newest)]
    hot.left_ms = max((s.frames[i][0].last_ms for s, i in older), default=hot.left_ms)
    for segment, index in newest:
        frame, _ = segment.frames[index]
        note = partial(_note, archive, segment, frame)
        try:
            with segment.files.reader(segment.name) as read:
                times = _load(read, frame, hot, catalog, note)
        except (DamagedError, OSError) as error:
            note(error)
            continue
        segment.frames[index] = (frame, hot.next_seq)
        hot.announce(times)
    for column, _ in catalog.series():
        catalog.release(column, hot.next_seq)


def _note(archive: Archive, segment: Segment, frame: Frame, error: Exception) -> None:
    archive.note_damage(segment, f"byte {frame.offset}: {error}")


def _newest(
    places: list[tuple[Segment, int]], rows: int, window_ms: int
) -> list[tuple[Segment, int]]:
    """The frames at the end that fit the window and are of full resolution."""
    start = len(places)
    for segment, index in reversed(places):
        frame, _ = segment.frames[index]
        newest, _ = places[-1][0].frames[places[-1][1]]
        rows -= frame.rows
        if segment.coarse or rows < 0 or frame.last_ms <= newest.last_ms - window_ms:
            break
        start -= 1
    return places[start:]


def _load(
    read: Read,
    frame: Frame,
    hot: HotWindow,
    catalog: Catalog,
    damaged: Callable[[DamagedError], None],
) -> array[int]:
    """Put a frame's columns in place for the next rows. Raises DamagedError, OSError."""
    directory = read_directory(read, frame)
    keys = list(parse_dictionary(directory.dictionary))
    for index in range(len(directory.groups)):
        try:
            floats = lanes.unpack(read_group(read, directory, index), frame.rows)
        except DamagedError as error:
            damaged(error)
            continue
        base = index * GROUP_COLUMNS
        for number, (kind, labels) in enumerate(keys[base : base + GROUP_COLUMNS]):
            column = catalog.intern(kind, labels, hot.oldest_seq)
            if column == NO_COLUMN:
                continue
            while hot.columns < catalog.columns:
                hot.grow()
            values = floats[number * frame.rows : (number + 1) * frame.rows]
            hot.load(hot.next_seq, column, values)
    return directory.times
