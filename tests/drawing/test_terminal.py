"""Plots as lines of text."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.drawing.spans import plain
from koordlet.drawing.terminal import ASCII, BLOCKS, Y_LABEL, blocks, merged, sparkline
from koordlet.drawing.terminal import plot as styled

NOON = 1769860800.0


def plot(values: list[float | None], start: float, step_s: float, **options: Any) -> list[str]:
    """Without styles."""
    return list(map(plain, styled(values, start, step_s, **options)))


@pytest.mark.usefixtures("utc")
def test_one_plot_to_the_letter() -> None:
    """Ten steps of 6 s in 28 columns: each is two columns wide."""
    values: list[float | None] = [0.0, 0.25, 0.5, 1.0, None, None, 2.0, 1.5, 0.01, 0.0]
    assert plot(values, NOON, 6.0, width=28, height=2) == [
        "     2 |            ██▄▄",
        "       |  ▂▂▄▄██    ████▁▁",
        "     0 +--------    --------",
        "        12:00",
    ]


@pytest.mark.usefixtures("utc")
def test_each_column_shows_the_highest_of_several() -> None:
    values: list[float | None] = [1.0, 3.0, None, 4.0, None, None, 2.0]
    assert merged(7, Y_LABEL + 4) == 2
    lines = plot(values, NOON, 60.0, width=Y_LABEL + 4, height=1, most=4.0)
    assert lines[0] == "       |▆█ ▄"
    assert lines[1] == "     0 +-- -"


def test_one_scale_for_several_plots() -> None:
    low = plot([1.0, 1.0], NOON, 1.0, width=20, height=4, most=4.0)
    assert [line.count("█") for line in low[:4]] == [0, 0, 0, 12]
    assert low[0].startswith("     4 |")


def test_without_a_value_there_is_an_empty_frame() -> None:
    lines = plot([None, None], NOON, 1.0, width=20, height=3)
    assert lines[:4] == ["     1 |", "   0.5 |", "       |", "     0 +"]
    assert plot([], NOON, 1.0, width=20, height=3)[3] == "     0 +"


@pytest.mark.usefixtures("utc")
def test_limits_to_the_letter() -> None:
    """A row is 1 of 4.2. 2 fills the second one; the limit of 3 is in the third, from which on what
    is above it is marked. Where nothing is known of either, only the other is drawn."""
    lines = styled(
        [1.0, 2.0, 4.0, None, 2.0],
        NOON,
        60.0,
        width=Y_LABEL + 5,
        height=4,
        most=4.2,
        limits=[3.0, 3.0, 3.0, 3.0, None],
    )
    assert list(map(plain, lines))[:5] == [
        "     4 |  !",
        "       |--!-",
        "     2 | ▇█ ▇",
        "       |███ █",
        "     0 +--- -",
    ]
    assert [(span.text, span.style) for span in lines[1]] == [
        ("       |", "dim"),
        ("--", "warn"),
        ("!", "bad"),
        ("-", "warn"),
        (" ", ""),
    ]


def test_a_limit_at_the_top_or_at_zero_is_seen() -> None:
    lines = plot([1.0, 1.0], NOON, 1.0, width=Y_LABEL + 2, height=2, limits=[2.0, 0.0])
    assert [line[Y_LABEL:] for line in lines[:2]] == ["-", "█!"]
    alone = plot([None], NOON, 1.0, width=Y_LABEL + 1, height=2, limits=[5.0])
    assert [line[Y_LABEL:] for line in alone[:3]] == ["-", "", ""]


def test_a_column_of_several_has_the_highest_limit_of_them() -> None:
    lines = plot(
        [3.0, 1.0, 1.0, 1.0], NOON, 1.0, width=Y_LABEL + 2, height=2, limits=[2.0, 3.9, None, 1.0]
    )
    assert [line[Y_LABEL:] for line in lines[:2]] == ["-", "█-"]


def test_a_sparkline() -> None:
    assert sparkline([0.0, 0.01, 4.0, 8.0], 8.0) == " ▁▄█"
    assert sparkline([0.0, 0.01, 4.0, 8.0], 8.0, ASCII) == " ..#".replace("..", ".=")
    assert sparkline([0.0, 0.0], 0.0) == "  "


@given(
    st.lists(st.none() | st.floats(0, 1e12), max_size=300),
    st.integers(10, 200),
    st.integers(1, 20),
    st.sampled_from([BLOCKS, ASCII]),
    st.lists(st.none() | st.floats(0, 1e12), max_size=300),
)
def test_it_fits_and_shows_what_is_there(
    values: list[float | None],
    width: int,
    height: int,
    cells: str,
    limits: list[float | None],
) -> None:
    lines = plot(values, NOON, 1.0, width=width, height=height, cells=cells, limits=limits)
    assert len(lines) == height + 2
    *rows, axis, _ = lines
    assert all(len(line) <= max(width, Y_LABEL + 1) for line in (*rows, axis))
    known = [value is not None for value in values]
    assert ("-" in axis) == any(known)
    bottom = rows[-1][Y_LABEL:]
    if not limits:
        assert any(cell not in (cells[0], " ") for cell in bottom) == any(values)


def test_what_the_output_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, wanted in (("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII)):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert blocks() == wanted
    assert len(ASCII) == len(BLOCKS) == 9
