"""Hours of the day."""

from __future__ import annotations

import random

import pytest

from koordlet.prediction.season import DAY_S, HOUR_S, Season
from koordlet.protocol.histogram import CPU_BUCKETS, MEMORY_BUCKETS

MIDNIGHT_S = 20_000 * DAY_S


def day(season: Season, number: int, of_hour: dict[int, float], otherwise: float = 0.1) -> None:
    """A sample a minute."""
    for minute in range(1440):
        value = of_hour.get(minute // 60, otherwise)
        season.add(value, MIDNIGHT_S + number * DAY_S + minute * 60, 60.0)


def at(season: Season, hour: float, share: float = 0.98) -> float:
    return season.percentile(share, MIDNIGHT_S + hour * HOUR_S)


def test_each_hour_has_its_own_peak_and_the_next_one_counts() -> None:
    season = Season(CPU_BUCKETS)
    day(season, 0, {9: 4.0, 14: 2.0})
    low, two, four = (CPU_BUCKETS.end(CPU_BUCKETS.find(each)) for each in (0.1, 2.0, 4.0))
    # An hour ahead of 8:30 reaches into 9:00, one ahead of 10:00 ends where 11 o'clock begins.
    assert [at(season, hour) for hour in (7.5, 8.5, 9.5, 10.0, 13.5, 23.5)] == [
        low, four, four, low, two, low,
    ]  # fmt: skip


def test_nothing_is_known_of_an_hour_that_was_not_seen() -> None:
    season = Season(CPU_BUCKETS)
    assert at(season, 12) == 0.0
    season.add(1.0, MIDNIGHT_S, 60.0)
    assert at(season, 12) == 0.0
    assert at(season, 0) > 1.0


def test_a_day_counts_less_with_each_that_follows() -> None:
    """The first day is higher: after n days its share is (6/7)^n of the sum of (6/7)^0..n."""
    season = Season(CPU_BUCKETS)
    day(season, 0, {9: 4.0})
    high = at(season, 9)
    for number in range(1, 8):
        day(season, number, {9: 1.0})
        kept = [(6 / 7) ** age for age in range(number + 1)]
        share = kept[-1] / sum(kept)
        assert at(season, 9, 1 - share - 0.02) < 2 < at(season, 9, 1 - share + 0.02) == high


def test_what_is_weeks_old_is_forgotten_and_no_count_overflows() -> None:
    season = Season(CPU_BUCKETS)
    for number in range(30):
        day(season, number, {}, otherwise=4.0)
    assert max(season.counts) < 1 << 16
    assert at(season, 24 * 29 + 13.5) > 4.0
    # Two weeks after the last sample nothing of the hour is left, also where none follows.
    assert at(season, 24 * 42 + 13.5) > 4.0
    assert at(season, 24 * 43 + 13.5) == 0.0
    season.add(1.0, MIDNIGHT_S + 43 * DAY_S, 60.0)
    assert at(season, 24 * 43, 1.0) < 2.0


@pytest.mark.parametrize("seconds", [10.0, 60.0, 240.0])
def test_an_hour_weighs_the_same_at_any_interval(seconds: float) -> None:
    season = Season(MEMORY_BUCKETS)
    for number in range(int(HOUR_S / seconds)):
        season.add(1e9, MIDNIGHT_S + number * seconds, seconds)
    assert sum(season.counts) == pytest.approx((1 << 16) / 7, rel=0.05)


def test_a_clock_that_jumps_does_no_harm() -> None:
    season, rng = Season(CPU_BUCKETS), random.Random(1)
    for _ in range(2000):
        season.add(rng.random() * 50, rng.random() * 1e11, 60.0)
    season.add(1.0, 1e10, 60.0)
    assert season.percentile(1.0, 1e10) == CPU_BUCKETS.end(CPU_BUCKETS.find(1.0))
