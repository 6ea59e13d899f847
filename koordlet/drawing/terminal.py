"""Plots as lines of text: for a terminal of any width, a pipe or a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from koordlet.drawing.charts import ticks
from koordlet.drawing.clock import time_ticks

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*%#"
"""The same eight levels of a cell where the output takes no other characters."""
Y_LABEL = 8
"""Columns left of the plot, with the axis."""
_LABEL_CELLS = 12
"""Columns between two labels of the x axis, at least."""
_TICKS = 3


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
) -> list[str]:
    """An area over time, its y axis from 0 to ``most`` (None: the highest value), its x axis in
    local time. A gap is empty and interrupts the axis, a zero is empty above it.

    ``values`` are those of steps that follow each other. Where they are more than the columns,
    each column shows the highest of several (``merged`` says of how many); where they are fewer,
    each takes several columns.
    """
    room = columns_for(width)
    group = merged(len(values), width)
    found = [_highest(values[i : i + group]) for i in range(0, len(values), group)]
    wide = max(room // len(found), 1) if found else 1
    shown = [value for value in found for _ in range(wide)]
    top = max((value for value in found if value is not None), default=0.0)
    top = (most or top) or 1.0
    marks = {round(tick / top * (height - 1)): tick for tick in ticks(top, _TICKS)}
    marks.pop(0, None)
    lines = []
    for row in reversed(range(height)):
        label = f"{marks[row]:g}" if row in marks else ""
        line = "".join(_cell(value, row, top / height, cells) for value in shown)
        lines.append(f"{label:>{Y_LABEL - 2}} |{line}".rstrip())
    axis = "".join(" " if value is None else "-" for value in shown)
    lines.append(f"{'0':>{Y_LABEL - 2}} +{axis}".rstrip())
    lines.append(_times(start, group * step_s * len(found), len(shown)))
    return lines


def merged(values: int, width: int) -> int:
    """How many values one column of a plot stands for."""
    return -(-values // columns_for(width)) or 1


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _cell(value: float | None, row: int, cell: float, cells: str) -> str:
    """``cell``: what one row stands for. What is above zero is always seen."""
    if value is None or value <= 0:
        return cells[0]
    levels = len(cells) - 1
    level = round((value / cell - row) * levels)
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
