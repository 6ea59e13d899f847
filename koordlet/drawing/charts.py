"""Small charts as SVG text: axes with round ticks, lines, areas, steps, dots and ticks of time.

A plotting library would bring tens of MiB for four kinds of picture in one report. Shapes carry CSS
classes; colours come from the page or the poster around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 36, 10, 34, 24
_TICK = 8
_LETTER = 6.6
"""Width of a character, about."""

CHART_STYLE = """
svg text { font: 12px system-ui, sans-serif; fill: var(--muted); }
svg .title { font-weight: 600; font-size: 13px; fill: var(--fg); }
.grid { stroke: var(--line); }
.ls, .be, .rest, .limit, .cpu, .mem, .io, .throttled {
  fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.ls { stroke: var(--ls); } .be { stroke: var(--be); } .rest { stroke: var(--rest); }
.cpu { stroke: var(--cpu); } .mem { stroke: var(--mem); stroke-dasharray: 6 3; }
.io { stroke: var(--io); stroke-dasharray: 2 2; } .throttled { stroke: var(--throttled); }
.thin { stroke-width: 1.2; stroke-dasharray: 2 2; }
.limit { stroke: var(--koordlet); stroke-width: 2.2; }
.halo { fill: none; stroke: var(--soft); stroke-width: 6; stroke-linejoin: round; }
.area { stroke: none; }
.area.ls { fill: var(--ls); } .area.be { fill: var(--be); } .area.rest { fill: var(--rest); }
.dot { fill: var(--ls); } .clip { fill: var(--ls); }
.decision { stroke: var(--koordlet); stroke-width: 2; }
.alarm { stroke: var(--koordlet); fill: var(--soft); stroke-width: 1.5; }
""".strip()


Point = tuple[float, float | None]


@dataclass(frozen=True)
class Line:
    """``points`` are (x, y) in data units, ``style`` is CSS classes. A y of None is a gap: nothing
    is drawn there. ``area`` fills down to zero, over what was drawn before: stacked classes are
    drawn from the highest sum to the lowest. ``steps``: a value holds until the next point."""

    style: str
    points: Sequence[Point]
    area: bool = False
    steps: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment above the x axis; ``style`` is ``decision`` or ``alarm``."""

    x: float
    style: str


@dataclass(frozen=True)
class Chart:
    """Shared ``x_max`` and ``y_max`` make the charts of several arms comparable by eye. ``about``
    is read out; ``note`` stands at the right above the chart. ``x_ticks``: where the x axis has
    which words; without any it counts seconds."""

    title: str
    about: str
    x_max: float
    y_max: float
    lines: Sequence[Line]
    dots: Sequence[tuple[float, float]] = ()
    marks: Sequence[Mark] = ()
    note: str = ""
    x_ticks: Sequence[tuple[float, str]] = ()
    width: int = 420
    height: int = 210


def ticks(limit: float, count: int = 4) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) from 0 up to `limit`."""
    raw = limit / count
    if raw <= 0:
        return [0.0]
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw)
    return [i * step for i in range(int(limit / step + 1e-9) + 1)]


def render(chart: Chart) -> str:
    """The chart as one ``<svg>`` element."""
    label = escape(f"{chart.title}: {chart.about}")
    size = f"0 0 {chart.width} {chart.height}"
    return f'<svg viewBox="{size}" role="img" aria-label="{label}">{body(chart)}</svg>'


def body(chart: Chart) -> str:
    """What is inside of that element. What is above the scale is marked by a triangle at the top
    edge."""
    scale = _Scale(chart)
    right, top = chart.width - _RIGHT, _TOP - 16
    seconds = ((tick, f"{tick:g} s") for tick in ticks(scale.x_max))
    return "".join(
        (
            *(_horizontal(scale, tick) for tick in ticks(scale.y_max)),
            *(_time(scale, *tick) for tick in chart.x_ticks or seconds),
            f'<text class="title" x="{_LEFT}" y="{top}">{escape(chart.title)}</text>',
            f'<text x="{right}" y="{top}" text-anchor="end">{escape(chart.note)}</text>',
            *(
                _line(scale, line, stretch)
                for line in chart.lines
                for stretch in _stretches(line.points)
            ),
            *(_dot(scale, x, y) for x, y in chart.dots),
            *(_mark(scale, mark) for mark in chart.marks),
        )
    )


class _Scale:
    """Data units to pixels; what lies outside is drawn at the edge."""

    def __init__(self, chart: Chart) -> None:
        self.x_max, self.y_max = chart.x_max or 1.0, chart.y_max or 1.0
        self.right, self.floor = chart.width - _RIGHT, chart.height - _BOTTOM

    def x(self, value: float) -> float:
        return _LEFT + (self.right - _LEFT) * min(max(value / self.x_max, 0.0), 1.0)

    def y(self, value: float) -> float:
        return _TOP + (self.floor - _TOP) * (1.0 - min(value / self.y_max, 1.0))


def _horizontal(scale: _Scale, tick: float) -> str:
    y = scale.y(tick)
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{scale.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    )


def _time(scale: _Scale, tick: float, words: str) -> str:
    # The last label would leave the picture at its right.
    x = min(scale.x(tick), scale.right - _LETTER * len(words) / 2)
    return f'<text x="{x:.1f}" y="{scale.floor + 16}" text-anchor="middle">{escape(words)}</text>'


def _stretches(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """The points between gaps."""
    found: list[tuple[float, float]] = []
    for x, y in points:
        if y is not None:
            found.append((x, y))
        elif found:
            yield found
            found = []
    if found:
        yield found


def _line(scale: _Scale, line: Line, stretch: list[tuple[float, float]]) -> str:
    points = _stepped(stretch) if line.steps else stretch
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
    if line.area:
        first, last = scale.x(points[0][0]), scale.x(points[-1][0])
        floor = scale.y(0)
        return (
            f'<polygon class="area {line.style}" '
            f'points="{first:.1f},{floor:.1f} {path} {last:.1f},{floor:.1f}"/>'
        )
    if len(points) == 1:  # a lone point would be no line
        path = f"{path} {min(scale.x(points[0][0]) + 1, scale.right):.1f},{path.partition(',')[2]}"
    peaks = "".join(_triangle(scale.x(x)) for x in _peaks(points, scale.y_max))
    # What is drawn over areas would not stand out from them.
    halo = f'<polyline class="halo" points="{path}"/>' if line.steps else ""
    return f'{halo}<polyline class="{line.style}" points="{path}"/>{peaks}'


def _stepped(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [points[0]]
    for x, y in points[1:]:
        found += [(x, found[-1][1]), (x, y)]
    return found


def _peaks(points: Sequence[tuple[float, float]], limit: float) -> Iterator[float]:
    """Where each stretch above ``limit`` is at its highest."""
    highest: tuple[float, float] | None = None
    for x, y in points:
        if y > limit and (highest is None or y > highest[1]):
            highest = x, y
        elif y <= limit and highest is not None:
            yield highest[0]
            highest = None
    if highest is not None:
        yield highest[0]


def _triangle(x: float) -> str:
    """At the top edge, its tip upwards."""
    points = f"{x - 4:.1f},{_TOP + 5} {x:.1f},{_TOP - 3} {x + 4:.1f},{_TOP + 5}"
    return f'<polygon class="clip" points="{points}"/>'


def _dot(scale: _Scale, x: float, y: float) -> str:
    if y > scale.y_max:
        return _triangle(scale.x(x))
    return f'<circle class="dot" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="1.6"/>'


def _mark(scale: _Scale, mark: Mark) -> str:
    x = scale.x(mark.x)
    if mark.style == "alarm":
        return f'<circle class="alarm" cx="{x:.1f}" cy="{_TOP - 5}" r="{_TICK / 2}"/>'
    return f'<line class="decision" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 9}" y2="{_TOP - 1}"/>'
