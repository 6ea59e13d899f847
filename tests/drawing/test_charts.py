"""Charts and colours of all pages."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.drawing.charts import Chart, Line, Mark, render, ticks
from koordlet.drawing.palette import BACKGROUNDS, DARK, LIGHT, UNDER_TEXT, UNREAD


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_everything_stands_out_from_its_background(palette: dict[str, str]) -> None:
    meets = [
        (name, background)
        for name in set(palette) - {*BACKGROUNDS, *UNREAD, *UNDER_TEXT}
        for background in BACKGROUNDS
    ]
    for name, background in [*meets, *(("fg", each) for each in UNDER_TEXT)]:
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


def test_a_gap_is_no_line() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 2.0), (4.0, None), (5.0, None), (6.0, 1.0)]
    lines = [Line("ls", points), Line("be", points, area=True), Line("rest", [(0.0, None)])]
    drawn = render(Chart("", "", 6.0, 2.0, lines))
    assert drawn.count('<polyline class="ls"') == 3
    assert drawn.count('<polygon class="area be"') == 3
    assert 'class="rest"' not in drawn
    # 374 px for 6 units from 36 on, 152 px for 2 units down to 186: a lone point is a dot.
    assert '<polyline class="ls" points="36.0,110.0 98.3,34.0"/>' in drawn
    assert '<polyline class="ls" points="223.0,34.0 224.0,34.0"/>' in drawn


def test_the_x_axis_may_have_words() -> None:
    chart = Chart("", "", 60.0, 1.0, (), x_ticks=((0.0, "12:00"), (60.0, "<12:01>")))
    drawn = render(chart)
    assert '<text x="36.0" y="202" text-anchor="middle">12:00</text>' in drawn
    assert '<text x="386.9" y="202" text-anchor="middle">&lt;12:01&gt;</text>' in drawn
    assert " s</text>" not in drawn
