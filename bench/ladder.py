"""The ladder: p99 latency of each service beside best-effort work, rung by rung, as one picture
made from the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from bench.effects.whole import PAIRS, RUNGS, arm_of
from bench.figures import Figure
from bench.recording import Record
from koordlet.drawing.palette import DARK, LIGHT, variables
from koordlet.protocol.intervals import Verdict

LADDERS = {"ladder-light.svg": LIGHT, "ladder-dark.svg": DARK}
"""Pictures in ``docs/images``."""

_WIDTH, _LEFT, _RIGHT = 860, 290, 30
_TOP, _ROW, _GAP, _BOTTOM = 64, 22, 14, 34
_MOST = 2.5
_STEP = 0.5
_TITLE = "p99 latency beside best-effort work, as a multiple of the service alone"
_STYLE = """
svg { color-scheme: only light; }
svg text { font: 12px system-ui, sans-serif; fill: var(--muted); }
svg .head { font-size: 16px; font-weight: 600; fill: var(--fg); }
svg .pair { font-size: 13px; font-weight: 600; fill: var(--fg); }
svg .value { fill: var(--fg); }
.back { fill: var(--bg); } .grid { stroke: var(--line); }
.one { stroke: var(--muted); stroke-dasharray: 4 3; }
.goal { stroke: var(--fg); stroke-width: 2; }
.without { fill: var(--be); stroke: var(--be); }
.reached { fill: var(--good); stroke: var(--good); }
.missed { fill: var(--bad); stroke: var(--bad); }
.undecided { fill: var(--rest); stroke: var(--rest); }
.span { stroke-width: 3; stroke-linecap: round; }
"""
_LEGEND = (
    ("without", "without koordlet"),
    (Verdict.REACHED, "goal reached"),
    (Verdict.UNDECIDED, "undecided"),
    (Verdict.MISSED, "missed"),
)


def ladder(records: Mapping[str, Record], palette: dict[str, str]) -> str:
    """A whole SVG document; a row for each rung of each pair that was recorded."""
    parts, y = [], _TOP
    for name, pair in PAIRS.items():
        record = records.get(name)
        if record is None:
            continue
        parts.append(f'<text class="pair" x="14" y="{y + 15}">{escape(pair.title)}</text>')
        unmanaged = record.figure("p99 unmanaged / alone")
        parts += _row(y, "without koordlet", unmanaged, "without", None)
        for percent in RUNGS:
            y += _ROW
            figure = record.figure(f"p99 {arm_of(percent)} / alone")
            label = f"koordlet, to {percent / 100:.2f} of the CPUs"
            parts += _row(y, label, figure, figure.verdict or "undecided", pair.goal)
        y += _ROW + _GAP
    height = y + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{_TITLE}">'
        f"<style>svg {{ {variables(palette)} }}{_STYLE}</style>"
        f'<rect class="back" width="{_WIDTH}" height="{height}" rx="8"/>'
        f'<text class="head" x="14" y="26">{_TITLE}</text>'
        f"{''.join(_legend())}{''.join(_grid(y))}{''.join(parts)}</svg>\n"
    )


def _x(value: float) -> float:
    return _LEFT + min(value, _MOST) / _MOST * (_WIDTH - _LEFT - _RIGHT)


def _legend() -> Iterator[str]:
    x = 14
    for style, words in _LEGEND:
        yield f'<circle class="{style}" cx="{x + 5}" cy="44" r="4.5"/>'
        yield f'<text x="{x + 15}" y="48">{words}</text>'
        x += 40 + round(6.4 * len(words))
    yield f'<line class="goal" x1="{x + 5}" x2="{x + 5}" y1="38" y2="50"/>'
    yield f'<text x="{x + 15}" y="48">the goal; bars: 95 % intervals</text>'


def _grid(bottom: int) -> Iterator[str]:
    value = 0.0
    while value <= _MOST:
        style = "one" if value == 1.0 else "grid"
        x = _x(value)
        yield f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        value += _STEP


def _row(y: int, label: str, figure: Figure, style: str, goal: float | None) -> Iterator[str]:
    """Draw one figure; one beyond the scale stands at its end."""
    middle = y + 11
    yield f'<text x="{_LEFT - 12}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>'
    if goal is not None:
        at = _x(goal)
        yield f'<line class="goal" x1="{at:.1f}" x2="{at:.1f}" y1="{y + 3}" y2="{y + 19}"/>'
    if figure.low is not None and figure.high is not None:
        low, high = _x(figure.low), _x(figure.high)
        yield (
            f'<line class="span {style}" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" '
            f'y2="{middle}"/>'
        )
    x, text = _x(figure.value), f"{figure.value:.2f}"
    yield f'<circle class="{style}" cx="{x:.1f}" cy="{middle}" r="4.5"/>'
    is_beyond = figure.value > _MOST
    at_x, at_y, anchor = (x - 10, middle - 4, "end") if is_beyond else (x, y + 3, "middle")
    yield f'<text class="value" x="{at_x:.1f}" y="{at_y}" text-anchor="{anchor}">{text}</text>'
