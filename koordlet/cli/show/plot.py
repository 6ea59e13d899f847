"""Use and predicted peak over time as lines of styled text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordlet.admin.prediction import PointView
from koordlet.cli.show.screen import Line, Span

_WIDEST, _NARROWEST = 120, 20
_FILLED = ".:#"
"""A cell by how much of it is filled."""
_PEAK, _ABOVE = "-", "!"


def plot(
    points: Sequence[PointView],
    height: int,
    width: int,
    label: Callable[[float], str],
    clock: Callable[[float], str],
) -> list[Line]:
    """``height``: lines without the axis of time, ``width``: columns in all. ``label`` and
    ``clock`` write amounts and times. What is used above the predicted peak is marked."""
    values = [v for p in points for v in (p.used, p.peak) if v is not None]
    top = max(values, default=0.0) * 1.05
    if top <= 0:
        return [(Span("  nothing to draw yet", "dim"),)]
    labels = {row: label(top * (height - row) / height) for row in (0, height // 2, height)}
    margin = max(map(len, labels.values()))
    columns = _columns(points, max(min(width - margin - 3, _WIDEST), _NARROWEST))
    lines: list[Line] = []
    for row in range(height):
        cells = [_cell(point, height - row - 1, top / height) for point in columns]
        lines.append((Span(f"{labels.get(row, ''):>{margin}} |", "dim"), *_joined(cells)))
    lines.append((Span(f"{labels[height]:>{margin}} +{'-' * len(columns)}", "dim"),))
    first, last = clock(points[0].time), clock(points[-1].time)
    gap = max(len(columns) - len(first) - len(last), 1)
    lines.append((Span(f"{'':>{margin}}  {first}{'':{gap}}{last}", "dim"),))
    return lines


def _columns(points: Sequence[PointView], most: int) -> list[PointView]:
    """At most so many; of several points the highest."""
    count = min(len(points), most)
    found = []
    for number in range(count):
        some = points[number * len(points) // count : (number + 1) * len(points) // count]
        found.append(
            PointView(
                time=some[0].time,
                used=max((p.used for p in some if p.used is not None), default=None),
                peak=max((p.peak for p in some if p.peak is not None), default=None),
            )
        )
    return found


def _cell(point: PointView, row: int, per_row: float) -> Span:
    """``row``: counted from the bottom."""
    used, peak = point.used or 0.0, point.peak
    filled = min(max(used / per_row - row, 0.0), 1.0)
    is_peak = peak is not None and row <= peak / per_row < row + 1
    if filled <= 0:
        return Span(_PEAK, "warn") if is_peak else Span(" ")
    if peak is not None and used > peak and row >= int(peak / per_row):
        return Span(_ABOVE, "bad")
    if is_peak:
        return Span(_PEAK, "warn")
    return Span(_FILLED[min(int(filled * len(_FILLED)), len(_FILLED) - 1)], "LS")


def _joined(cells: Sequence[Span]) -> list[Span]:
    """Neighbours of one style as one span."""
    found: list[Span] = []
    for cell in cells:
        if found and found[-1].style == cell.style:
            found[-1] = Span(found[-1].text + cell.text, cell.style)
        else:
            found.append(cell)
    return found
