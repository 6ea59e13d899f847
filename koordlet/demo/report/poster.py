"""The demo's story as one SVG picture, in light or dark, for a README."""

from __future__ import annotations

import textwrap
from html import escape

from koordlet.demo.model import DemoResult
from koordlet.demo.report.headline import headline
from koordlet.demo.report.panels import cpu_charts, latency_charts, shown
from koordlet.demo.table import settings_line
from koordlet.drawing.charts import CHART_STYLE, Chart, body
from koordlet.drawing.palette import variables

_GAP = 12
_HEAD = 6
_LINE = 24
_CHARACTERS = 120
_LEGENDS = (
    (("p99", "<polyline class='ls' points='1,7 23,7'/>"),
     ("p50", "<polyline class='ls thin' points='1,7 23,7'/>"),
     ("one of the slowest 1 %", "<circle class='dot' cx='12' cy='7' r='2.5'/>"),
     ("above the scale", "<polygon class='clip' points='8,11 12,3 16,11'/>")),
    (("best-effort work (BE)", "<polygon class='area be' points='2,1 22,1 22,13 2,13'/>"),
     ("service (LS)", "<polygon class='area ls' points='2,1 22,1 22,13 2,13'/>"),
     ("rest", "<polygon class='area rest' points='2,1 22,1 22,13 2,13'/>"),
     ("the limit of best-effort work", "<polyline class='limit' points='1,7 23,7'/>"),
     ("a decision", "<line class='decision' x1='12' x2='12' y1='2' y2='12'/>")),
)  # fmt: skip
_TITLES = ("Latency of the service, ms", "CPU, cores")
_STYLE = """
svg { color-scheme: only light; }
.back { fill: var(--bg); } .panel { fill: var(--soft); }
svg .head { font-size: 17px; font-weight: 600; fill: var(--fg); }
svg .row { font-size: 14px; font-weight: 600; fill: var(--fg); }
svg .legend { fill: var(--fg); }
"""


def poster(demo: DemoResult, palette: dict[str, str]) -> str:
    """A whole SVG document."""
    arms = shown(demo)
    charts = [list(latency_charts(arms)), list(cpu_charts(arms))]
    first = charts[0][0] if arms else Chart("", "", 1.0, 1.0, ())
    width = _GAP + max(len(arms), 1) * (first.width + _GAP)
    lines = textwrap.wrap(headline(demo) or "koordlet demo", _CHARACTERS * width // 1308)
    parts, y = [], _HEAD
    for line in lines:
        y += _LINE
        parts.append(f'<text class="head" x="{_GAP}" y="{y}">{escape(line)}</text>')
    for title, legend, row in zip(_TITLES, _LEGENDS, charts, strict=True):
        y += _LINE + 8
        parts.append(f'<text class="row" x="{_GAP}" y="{y}">{title}</text>')
        parts.append(_legend(legend, _GAP + 220, y))
        y += 10
        for index, chart in enumerate(row):
            parts.append(_panel(chart, _GAP + index * (chart.width + _GAP), y))
        y += first.height
    y += _LINE
    parts.append(f'<text x="{_GAP}" y="{y}">{escape(settings_line(demo.settings))}</text>')
    height = y + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(headline(demo) or "koordlet demo")}">'
        f"<style>svg {{ {variables(palette)} }}\n{CHART_STYLE}{_STYLE}</style>"
        f'<rect class="back" width="{width}" height="{height}" rx="8"/>{"".join(parts)}</svg>\n'
    )


def _panel(chart: Chart, x: int, y: int) -> str:
    back = f'<rect class="panel" width="{chart.width}" height="{chart.height}" rx="6"/>'
    return f'<g transform="translate({x},{y})">{back}{body(chart)}</g>'


def _legend(entries: tuple[tuple[str, str], ...], x: int, y: int) -> str:
    parts = []
    for words, shape in entries:
        parts.append(
            f'<g transform="translate({x},{y - 11})">{shape}'
            f'<text class="legend" x="30" y="11">{escape(words)}</text></g>'
        )
        x += 58 + round(6.6 * len(words))
    return "".join(parts)
