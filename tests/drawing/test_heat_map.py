"""Heat maps and timelines."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.drawing.heat_map import figure, heat_map
from koordlet.drawing.lanes import lanes


def _texts(svg: str, style: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter("text") if each.get("class") == style]


def test_a_figure_in_every_cell_the_highest_is_the_darkest() -> None:
    svg = heat_map(("web", "db"), ("job", "system"), ((12.5, None), (0.0, 25.0)), about="who")
    assert _texts(svg, "cell") == ["12.5", "0", "25"]
    assert _texts(svg, "name") == ["job", "system", "web", "db"]
    shades = [each.get("fill-opacity") for each in ElementTree.fromstring(svg).iter("rect")]
    assert shades == ["0.50", "0.00", "1.00"]
    assert 'aria-label="who"' in svg
    # A cell that is not known is no zero: nothing is drawn there.
    left, top = (ElementTree.fromstring(svg).find("rect").get(name) for name in ("x", "y"))  # type: ignore[union-attr]
    assert svg.count(f'x="{left}"') == 2
    assert svg.count(f'y="{top}"') == 1


def test_marked_cells_have_a_frame() -> None:
    svg = heat_map(("web", "db"), ("job",), ((1.0,), (2.0,)), marked={(1, 0)})
    assert [each.get("class") for each in ElementTree.fromstring(svg).iter("rect")] == [
        "heat",
        "heat marked",
    ]


def test_names_are_escaped_and_cut() -> None:
    svg = heat_map(("<script>x</script>",), ("&" * 100,), ((1.0,),), about='"><b>')
    assert "<script" not in svg
    assert _texts(svg, "name") == ["&" * 31 + "…", "<script>x</script>"]


def test_an_empty_one_is_a_picture_too() -> None:
    for rows, columns, values in (((), (), ()), (("a",), (), ((),)), (("a",), ("b",), ((None,),))):
        assert ElementTree.fromstring(heat_map(rows, columns, values)).tag == "svg"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0004, "<0.001"), (0.0123, "0.0123"), (1.234, "1.23"), (99.96, "100"),
     (1234.5, "1234"), (1e6, "1000000")],
)  # fmt: skip
def test_figures_are_short(value: float, text: str) -> None:
    assert figure(value) == text


@given(
    st.lists(st.lists(st.none() | st.floats(0, 1e15), min_size=3, max_size=3), max_size=5),
    st.lists(st.text(max_size=60), min_size=3, max_size=3),
)
def test_any_values_and_names(values: list[list[float | None]], columns: list[str]) -> None:
    columns = ["".join(c for c in name if c.isprintable()) for name in columns]
    svg = heat_map([str(n) for n in range(len(values))], columns, values)
    for rect in ElementTree.fromstring(svg).iter("rect"):
        assert 0 <= float(rect.get("fill-opacity") or "nan") <= 1


def test_a_bar_wherever_something_happened() -> None:
    found = {"alarms": Counter({0: 1, 5: 4}), "<cpu-suppress>": Counter({9: 2})}
    svg = lanes(found, 10, ((0.0, "12:00"), (1.0, "12:10")), width=1140)
    root = ElementTree.fromstring(svg)
    assert [each.get("x") for each in root.iter("rect")] == ["130.0", "630.0", "1030.0"]
    assert [each.get("fill-opacity") for each in root.iter("rect")] == ["0.51", "1.00", "1.00"]
    assert _texts(svg, "lane") == ["alarms", "<cpu-suppress>"]
    ticks = [each for each in root.iter("text") if each.get("class") is None]
    assert [(each.text, each.get("x")) for each in ticks] == [
        ("12:00", "130.0"), ("12:10", "1113.5"),
    ]  # fmt: skip
