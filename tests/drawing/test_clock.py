"""Times on axes and in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.drawing.clock import NICE_S, nice_step, span, stretch, time_ticks, zone
from tests.cli.conftest import InZone

NOON = 1769860800.0  # 2026-01-31 12:00:00 UTC


@pytest.mark.parametrize(
    ("seconds", "most", "step"),
    [
        (60, 60, 1),
        (61, 60, 2),
        (3600, 60, 60),
        (3600, 7, 600),
        (86400, 4, 21600),
        (1e9, 1, 2419200),
    ],
)
def test_steps_that_people_count_in(seconds: float, most: int, step: float) -> None:
    assert nice_step(seconds, most) == step


@given(st.floats(0.001, 1e7), st.integers(1, 1000))
def test_a_step_is_the_shortest_that_fits(seconds: float, most: int) -> None:
    step = nice_step(seconds, most)
    assert step in NICE_S
    assert seconds / step <= most or step == NICE_S[-1]
    shorter = [each for each in NICE_S if each < step]
    assert not shorter or seconds / shorter[-1] > most


@pytest.mark.parametrize(
    ("zone_name", "start", "length", "wanted"),
    [
        ("UTC", -30, 120, {0: "12:00", 60: "12:01"}),
        ("UTC", 0, 10, {0: "12:00:00", 5: "12:00:05", 10: "12:00:10"}),
        ("IST-5:30", 0, 3600, {0: "17:30", 1800: "18:00", 3600: "18:30"}),
        ("UTC", -43200 - 60, 86400 * 2, {-43200: "31 Jan", 43200: "01 Feb"}),
    ],
)
def test_ticks_are_round_in_local_time(
    zone_name: str, start: float, length: float, wanted: dict[float, str], in_zone: InZone
) -> None:
    in_zone(zone_name)
    found = time_ticks(NOON + start, NOON + start + length, 3)
    assert {at - NOON: words for at, words in found} == wanted


@given(st.floats(0, 2e9), st.floats(1, 1e7), st.integers(1, 20))
def test_ticks_are_inside(start: float, length: float, most: int) -> None:
    found = time_ticks(start, start + length, most)
    assert all(start - 1e-3 <= at <= start + length + 1e-3 for at, _ in found)
    assert len(found) <= most + 1 or length > NICE_S[-1] * most


def test_words(in_zone: InZone) -> None:
    in_zone("UTC")
    assert stretch(NOON, NOON + 90) == "2026-01-31 12:00:00 to 12:01:30"
    assert stretch(NOON, NOON + 86400) == "2026-01-31 12:00:00 to 2026-02-01 12:00:00"
    assert zone(NOON) == "UTC"
    assert [span(each) for each in (0.0002, 1, 90, 600, 5400, 100000)] == [
        "200 us", "1 s", "90 s", "10 min", "90 min", "1 d 3 h",
    ]  # fmt: skip
    in_zone("CET-1")
    assert zone(NOON) == "UTC+01:00"
