"""Events over time as SVG: a lane for each kind, a bar wherever something happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

LANES_STYLE = """
.event { fill: var(--koordlet); }
svg .lane { fill: var(--fg); }
""".strip()
_LEFT, _RIGHT, _TOP, _BOTTOM = 130, 10, 4, 20
_LANE = 20
_LONGEST = 18
_LETTER = 6.6
_FAINTEST = 0.35


def lanes(
    found: Mapping[str, Mapping[int, int]],
    bins: int,
    x_ticks: Sequence[tuple[float, str]],
    *,
    width: int = 1160,
) -> str:
    """``found``: lane -> number of the bin -> how many events are in it; the time is divided into
    so many ``bins``. ``x_ticks``: parts of the time from 0 to 1, each with its words."""
    floor = _TOP + _LANE * len(found)
    size = width - _LEFT - _RIGHT
    parts = []
    for part, words in x_ticks:
        x = _LEFT + size * part
        label = min(x, width - _RIGHT - _LETTER * len(words) / 2)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>'
            f'<text x="{label:.1f}" y="{floor + 15}" text-anchor="middle">{escape(words)}</text>'
        )
    for number, (name, counts) in enumerate(found.items()):
        y = _TOP + _LANE * number
        shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        parts.append(
            f'<text class="lane" x="{_LEFT - 6}" y="{y + 14}" text-anchor="end">'
            f"{escape(shown)}</text>"
        )
        most = max(counts.values(), default=1)
        parts += [_bar(at, count / most, y, size / bins) for at, count in sorted(counts.items())]
    return (
        f'<svg viewBox="0 0 {width} {floor + _BOTTOM}" role="img" '
        f'aria-label="what happened when">{"".join(parts)}</svg>'
    )


def _bar(at: int, part: float, y: float, bin_width: float) -> str:
    opacity = _FAINTEST + (1 - _FAINTEST) * part
    return (
        f'<rect class="event" x="{_LEFT + at * bin_width:.1f}" y="{y + 3}" '
        f'width="{max(bin_width, 2):.1f}" height="{_LANE - 6}" fill-opacity="{opacity:.2f}"/>'
    )
