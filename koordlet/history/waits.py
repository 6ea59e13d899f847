"""Who made whom wait for a CPU, as rows, columns and seconds for a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koordlet.admin.client import RefusedError
from koordlet.admin.model import PodKind
from koordlet.collectors import CATALOGUE
from koordlet.decision.names import harmless
from koordlet.drawing.clock import nice_step
from koordlet.history.source import Source
from koordlet.history.who import Key, Who, unnamed

KIND = "pod_cpu_wait"
"""Series with the labels pod_uid, culprit and culprit_kind, time waited per second."""
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
"""Of the unit's first word: ``ns/s``, ``ms per second``."""
_STEPS = 120
MOST_ROWS, MOST_COLUMNS = 12, 12
OTHERS = "others"


class Waits(NamedTuple):
    """``values[row][column]``: seconds that the row waited for the column, in all of the time;
    None where nothing was measured. What there is no room for is in the last row and column."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


def waits(source: Source, names: Mapping[Key, Who], start: float, end: float) -> Waits | None:
    """None where the store has no such series. A step without a sample counts as no wait."""
    step_s = nice_step(end - start, _STEPS)
    try:
        found = source.query_range(KIND, {}, start, end, step_s, "avg")
    except RefusedError:
        if KIND in CATALOGUE:
            raise
        return None  # no collector of this koordlet knows it
    if not found.series:
        return None
    factor = _SECONDS.get(found.unit.replace("/", " ").split(" ")[0], 1e-9)
    cells: dict[str, dict[str, float]] = {}
    for each in found.series:
        victim = names.get((PodKind.POD, each.labels["pod_uid"]))
        row = (victim or unnamed((PodKind.POD, each.labels["pod_uid"]))).title
        column = _culprit(each.labels, names)
        waited_s = sum(value for value in each.values if value is not None) * factor * step_s
        cells.setdefault(row, {})
        cells[row][column] = cells[row].get(column, 0.0) + waited_s
    return _bounded(cells)


def _culprit(labels: Mapping[str, str], names: Mapping[Key, Who]) -> str:
    """A pod or application by its name, anything else by what it is."""
    culprit, kind = labels.get("culprit", ""), labels.get("culprit_kind", "")
    for each in PodKind:
        if (each, culprit) in names:
            return names[each, culprit].title
    return harmless(culprit or kind or OTHERS)


def _bounded(cells: Mapping[str, Mapping[str, float]]) -> Waits:
    """Rows and columns by what is in them, the most first."""
    of_row = {row: sum(each.values()) for row, each in cells.items()}
    of_column: dict[str, float] = {}
    for each in cells.values():
        for column, seconds in each.items():
            of_column[column] = of_column.get(column, 0.0) + seconds
    rows, row_of = _places(of_row, MOST_ROWS)
    columns, column_of = _places(of_column, MOST_COLUMNS)
    values: list[list[float | None]] = [[None] * len(columns) for _ in rows]
    for row, each in cells.items():
        for column, seconds in each.items():
            y, x = row_of[row], column_of[column]
            values[y][x] = (values[y][x] or 0.0) + seconds
    return Waits(rows, columns, tuple(map(tuple, values)))


def _places(totals: Mapping[str, float], most: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names that are shown, and where each name's numbers go."""
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    if len(ordered) <= most:
        return tuple(ordered), {name: at for at, name in enumerate(ordered)}
    shown = ordered[: most - 1]
    places = {name: min(at, most - 1) for at, name in enumerate(ordered)}
    return (*shown, f"{len(ordered) - len(shown)} {OTHERS}"), places
