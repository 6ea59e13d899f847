"""Plots as lines of styled text: for a terminal of any width, a pipe or a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from koordlet.drawing.charts import ticks
from koordlet.drawing.clock import time_ticks
from koordlet.drawing.spans import Line, Span, joined

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*%#"
"""The same eight levels of a cell where the output takes no other characters."""
LIMIT, ABOVE = "-", "!"
"""A limit, and what is above it."""
Y_LABEL = 8
"""Columns left of the plot, with the axis."""
_LABEL_CELLS = 12
"""Columns between two labels of the x axis, at least."""
_TICKS = 3
_AREA = "LS"


class Column(NamedTuple):
    value: float | None
    limit: float | None = None


def blocks() -> str:
    """What stdout can show."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def columns_for(width: int) -> int:
    """How many values stand beside each other in a plot of that width."""
    return max(width - Y_LABEL, 1)


def plot(
    values: Sequence[float | None],
    start: float,
    step_s: float,
    *,
    width: int,
    height: int,
    most: float | None = None,
    cells: str = BLOCKS,
    limits: Sequence[float | None] = (),
) -> list[Line]:
    """An area over time, its y axis from 0 to ``most`` (None: the highest value or limit), its x
    axis in local time. A gap is empty and interrupts the axis, a zero is empty above it.

    ``values`` are those of steps that follow each other. Where they are more than the columns,
    each column shows the highest of several (``merged`` says of how many); where they are fewer,
    each takes several columns. ``limits``, one for each value, are drawn as a line; of a value
    that is above its limit, the part from the limit's line on is marked.
    """
    room = columns_for(width)
    group = merged(len(values), width)
    found = [
        Column(highest(values[i : i + group]), highest(limits[i : i + group]))
        for i in range(0, len(values), group)
    ]
    wide = max(room // len(found), 1) if found else 1
    shown = [column for column in found for _ in range(wide)]
    top = most or highest([each for column in found for each in column]) or 1.0
    marks = {round(tick / top * (height - 1)): tick for tick in ticks(top, _TICKS)}
    marks.pop(0, None)
    lines = []
    for row in reversed(range(height)):
        label = f"{marks[row]:g}" if row in marks else ""
        area = (_cell(column, row, height, top, cells) for column in shown)
        lines.append(joined((_axis(label, "|"), *area)))
    axis = "".join(" " if column.value is None else "-" for column in shown)
    lines.append((_axis("0", f"+{axis}"),))
    lines.append((Span(_times(start, group * step_s * len(found), len(shown)), "dim"),))
    return lines


def merged(values: int, width: int) -> int:
    """How many values one column of a plot stands for."""
    return -(-values // columns_for(width)) or 1


def highest(values: Sequence[float | None]) -> float | None:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)


def sparkline(values: Sequence[float], most: float, cells: str = BLOCKS) -> str:
    """One character for each value; a blank for 0."""
    return "".join(_level(_part(value, most), 0, cells) for value in values)


def _axis(label: str, line: str) -> Span:
    return Span(f"{label:>{Y_LABEL - 2}} {line}", "dim")


def _cell(column: Column, row: int, height: int, top: float, cells: str) -> Span:
    value, limit = column
    at = min(int(_part(limit, top) * height), height - 1) if limit is not None else height
    text = cells[0] if value is None else _level(_part(value, top) * height, row, cells)
    if limit is not None and value is not None and value > limit and row >= at:
        return Span(ABOVE if text != cells[0] or row == at else text, "bad")
    if row == at:
        return Span(LIMIT, "warn")
    return Span(text, _AREA if text != cells[0] else "")


def _part(value: float, most: float) -> float:
    """From 0 to 1."""
    return min(max(value / most, 0.0), 1.0) if most > 0 else 0.0


def _level(rows: float, row: int, cells: str) -> str:
    """``rows``: so many are filled, from the bottom. What is above zero is always seen."""
    if rows <= 0:
        return cells[0]
    levels = len(cells) - 1
    level = round((rows - row) * levels)
    return cells[min(max(level, 1 if row == 0 else 0), levels)]


def _times(start: float, length_s: float, size: int) -> str:
    """Each label begins below its time."""
    line = ""
    most = max(size // _LABEL_CELLS, 1)
    for time, label in time_ticks(start, start + length_s, most) if size else ():
        column = Y_LABEL + int((time - start) / length_s * size)
        if column >= len(line) + bool(line) and column + len(label) <= Y_LABEL + size + 4:
            line = line.ljust(column) + label
    return line
