"""A heat map as SVG: who did what to whom, a figure in every cell."""

from __future__ import annotations

from collections.abc import Container, Sequence
from html import escape

HEAT_STYLE = """
.heat { fill: var(--heat); }
.marked { stroke: var(--fg); stroke-width: 2; }
svg .cell { fill: var(--fg); text-anchor: middle; }
svg .name { fill: var(--fg); }
""".strip()
_CELL_X, _CELL_Y = 64, 24
_LETTER = 7.2
"""Width of a character of the charts' text, in pixels."""
_LONGEST = 32
_SLANT = 0.71  # the names of columns stand at 45 degrees


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    about: str = "",
    marked: Container[tuple[int, int]] = (),
) -> str:
    """``values[row][column]``, not negative; None is a cell of which nothing is known. The darkest
    cell is the highest; those in ``marked`` (row, column) have a frame. ``about`` is read out. The
    names may be anybody's: they are escaped, and cut after 32 characters."""
    most = max((each for row in values for each in row if each is not None), default=0.0)
    across, down = [_cut(name) for name in columns], [_cut(name) for name in rows]
    left = 10 + _LETTER * max(map(len, down), default=0)
    top = 14 + _LETTER * _SLANT * max(map(len, across), default=0)
    width = left + _CELL_X * len(columns) + _LETTER * _SLANT * _LONGEST
    height = top + _CELL_Y * len(rows) + 6
    parts = [_column(name, left + _CELL_X * (x + 0.5), top - 6) for x, name in enumerate(across)]
    for y, (name, row) in enumerate(zip(down, values, strict=True)):
        middle = top + _CELL_Y * y + _CELL_Y / 2 + 4
        parts.append(
            f'<text class="name" x="{left - 6:.1f}" y="{middle:.1f}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        for x, value in enumerate(row):
            if value is not None:
                style = "heat marked" if (y, x) in marked else "heat"
                parts.append(_cell(value, most, left + _CELL_X * x, top + _CELL_Y * y, style))
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{escape(about)}">{"".join(parts)}</svg>'
    )


def figure(value: float) -> str:
    """Three digits at the most, no exponent for what people count in."""
    if value >= 100 or value == 0:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 else "<0.001"


def _column(name: str, x: float, y: float) -> str:
    return (
        f'<text class="name" transform="translate({x:.1f},{y:.1f}) rotate(-45)">'
        f"{escape(name)}</text>"
    )


def _cell(value: float, most: float, x: float, y: float, style: str) -> str:
    part = value / most if most > 0 else 0.0
    return (
        f'<rect class="{style}" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{_CELL_X - 2}" '
        f'height="{_CELL_Y - 2}" fill-opacity="{part:.2f}"/>'
        f'<text class="cell" x="{x + _CELL_X / 2:.1f}" y="{y + _CELL_Y / 2 + 4:.1f}">'
        f"{escape(figure(value))}</text>"
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
