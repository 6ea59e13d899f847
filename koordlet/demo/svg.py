"""Small line charts as SVG text: axes with round ticks, lines, areas, dots, marks with tooltips.

A plotting library would bring tens of MiB for three kinds of picture in one report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 900, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28


@dataclass(frozen=True)
class Line:
    """``points`` are (x, y) in data units; ``area`` fills down to zero, over what was drawn before:
    stacked classes are drawn from the highest sum to the lowest."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    area: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment on the x axis; the browser shows ``tooltip`` when the pointer rests on it.
    ``style`` is a CSS class; a mark with ``line`` reaches from top to bottom."""

    x: float
    tooltip: str
    style: str
    line: bool = True


@dataclass(frozen=True)
class Chart:
    """Shared ``x_max`` and ``y_max`` make the charts of several arms comparable by eye."""

    y_label: str
    x_max: float
    y_max: float
    lines: Sequence[Line]
    dots: Sequence[tuple[float, float]] = ()
    marks: Sequence[Mark] = field(default=())


def ticks(limit: float, count: int = 4) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) from 0 up to `limit`."""
    if limit <= 0:
        return [0.0]
    raw = limit / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw)
    return [i * step for i in range(int(limit / step + 1e-9) + 1)]


def render(chart: Chart) -> str:
    """The chart as one ``<svg>`` element, with a ``<title>`` for every mark."""
    scale = _Scale(chart.x_max or 1.0, chart.y_max or 1.0)
    return "".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" ',
            f'aria-label="{escape(chart.y_label)}">',
            *(_horizontal(scale, tick) for tick in ticks(scale.y_max)),
            *(_time(scale, tick) for tick in ticks(scale.x_max, 8)),
            f'<text class="label" transform="rotate(-90)" x="{-HEIGHT // 2}" y="14" ',
            f'text-anchor="middle">{escape(chart.y_label)}</text>',
            *(_line(scale, line) for line in chart.lines if line.points),
            *(
                f'<circle class="dot" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="1.8"/>'
                for x, y in chart.dots
            ),
            *(_mark(scale, mark) for mark in chart.marks),
            "</svg>",
        )
    )


@dataclass(frozen=True)
class _Scale:
    """Data units to pixels; what lies outside is drawn at the edge."""

    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(value / self.x_max, 1.0)

    def y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1.0 - min(value / self.y_max, 1.0))


def _horizontal(scale: _Scale, tick: float) -> str:
    y = scale.y(tick)
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    )


def _time(scale: _Scale, tick: float) -> str:
    return (
        f'<text class="tick" x="{scale.x(tick):.1f}" y="{HEIGHT - 10}" '
        f'text-anchor="middle">{tick:g} s</text>'
    )


def _line(scale: _Scale, line: Line) -> str:
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in line.points)
    stroke = (
        f'<polyline fill="none" stroke="{line.colour}" stroke-width="1.6" points="{path}">'
        f"<title>{escape(line.label)}</title></polyline>"
    )
    if not line.area:
        return stroke
    first, last = scale.x(line.points[0][0]), scale.x(line.points[-1][0])
    floor = scale.y(0)
    return (
        f'<polygon fill="{line.colour}" fill-opacity="0.8" '
        f'points="{first:.1f},{floor:.1f} {path} {last:.1f},{floor:.1f}"/>{stroke}'
    )


def _mark(scale: _Scale, mark: Mark) -> str:
    x = scale.x(mark.x)
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
    return (
        f'<g class="{mark.style}">{line if mark.line else ""}'
        f'<circle cx="{x:.1f}" cy="{_TOP}" r="5"/><title>{escape(mark.tooltip)}</title></g>'
    )
