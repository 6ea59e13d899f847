"""Charts and colours of all pages."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.drawing.charts import Chart, Line, Mark, render, ticks
from koordlet.drawing.palette import BACKGROUNDS, DARK, LIGHT, UNREAD


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_everything_stands_out_from_its_background(palette: dict[str, str]) -> None:
    for name in set(palette) - {*BACKGROUNDS, *UNREAD}:
        for background in BACKGROUNDS:
            light, dark = sorted(map(_luminance, (palette[name], palette[background])))[::-1]
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, background)


def test_one_meaning_a_colour() -> None:
    assert set(LIGHT) == set(DARK)
    for palette in (LIGHT, DARK):
        assert len(set(palette.values())) == len(palette)


@given(st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(limit: float) -> None:
    found = ticks(limit)
    assert found[0] == 0.0
    assert found[-1] <= limit * (1 + 1e-6)
    assert 2 <= len(found) <= 6


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e9)), max_size=20),
    st.just(0.0) | st.floats(1e-3, 1e3),
    st.just(0.0) | st.floats(1e-3, 1e3),
)
def test_nothing_is_drawn_outside(
    points: list[tuple[float, float]], x_max: float, y_max: float
) -> None:
    chart = Chart(
        "y <&>",
        "<&>",
        x_max,
        y_max,
        [Line("ls", points, area=True), Line("be", points), Line("limit", points, steps=True)],
        points,
        [Mark(0.0, "decision"), Mark(1e9, "alarm")],
    )
    seen: list[float] = []

    class _Shape(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in ("cx", "x1", "x2"):
                    assert 0 <= float(value or "nan") <= chart.width
                    seen.append(float(value or "nan"))
                if name in ("cy", "y1", "y2"):
                    assert 0 <= float(value or "nan") <= chart.height
                if name == "points":
                    for pair in (value or "").split():
                        x, y = map(float, pair.split(","))
                        assert 0 <= x <= chart.width
                        assert 0 <= y <= chart.height

    _Shape().feed(render(chart))
    assert seen
