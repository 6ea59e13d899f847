"""Coarse history: what stays of a segment when its full resolution has to go.

For each series and interval five statistics are kept, as columns of a frame whose rows are the
starts of the intervals.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import groupby
from threading import Event

from koordlet.tsdb import lanes
from koordlet.tsdb.aggregates import Interval, condense
from koordlet.tsdb.files import Read
from koordlet.tsdb.frame import (
    GROUP_COLUMNS,
    MAX_ROWS,
    DamagedError,
    Frame,
    Key,
    assemble,
    pack_group,
    parse_dictionary,
    read_directory,
    read_group,
)

STATS = len(Interval._fields)


class StoppedError(Exception):
    """The store is closing; what was being condensed stays as it is."""


def coarsen(
    read: Read,
    frames: Sequence[Frame],
    step_ms: int,
    damaged: Callable[[Frame, DamagedError], None],
    stopping: Event,
) -> bytes | None:
    """A frame of history from the frames of one file; None when nothing in them is readable.

    Frames end where a step ends, so a whole frame belongs to one interval. Raises StoppedError
    soon after ``stopping`` is set: with thousands of series this takes a second or two.
    """
    spans = [
        (start, list(group))
        for start, group in groupby(frames, lambda frame: frame.first_ms // step_ms * step_ms)
    ][:MAX_ROWS]
    rows = len(spans)
    cells: dict[Key, array[float]] = {}
    gaps = array("f", [float("nan")]) * (rows * STATS)
    for row, (_, group) in enumerate(spans):
        if stopping.is_set():
            raise StoppedError
        for key, points in _points(read, group, damaged).items():
            interval = condense(points)
            if interval is not None:
                cells.setdefault(key, gaps[:])[row::rows] = array("f", interval)
    if not cells:
        return None
    keys = sorted(cells, key=lambda key: key[0])
    columns = [
        cells[key][stat * rows : (stat + 1) * rows].tobytes()
        for stat in range(STATS)
        for key in keys
    ]
    groups = [
        pack_group(b"".join(columns[start : start + GROUP_COLUMNS]), rows)
        for start in range(0, len(columns), GROUP_COLUMNS)
    ]
    return assemble(array("q", (start for start, _ in spans)), keys, groups, STATS)


def _points(
    read: Read,
    frames: Sequence[Frame],
    damaged: Callable[[Frame, DamagedError], None],
) -> dict[Key, array[float]]:
    points: dict[Key, array[float]] = {}
    for frame in frames:
        try:
            directory = read_directory(read, frame)
        except DamagedError as error:
            damaged(frame, error)
            continue
        keys = list(parse_dictionary(directory.dictionary))
        for index in range(len(directory.groups)):
            try:
                floats = lanes.unpack(read_group(read, directory, index), frame.rows)
            except DamagedError as error:
                damaged(frame, error)
                continue
            base = index * GROUP_COLUMNS
            for column, key in enumerate(keys[base : base + GROUP_COLUMNS]):
                values = floats[column * frame.rows : (column + 1) * frame.rows]
                if key in points:
                    points[key].extend(values)
                else:
                    points[key] = values
    return points
