"""Peaks with their margins, the choice of the model, cold starts."""

from __future__ import annotations

import pytest

from koordlet.prediction.backtest import MOST_MARGIN, Model
from koordlet.prediction.forecast import CPU, MEMORY, Forecast, Kind, Rule
from koordlet.prediction.subject import ITEMS, NODE_UIDS, Subject, uid_of_item
from koordlet.protocol.histogram import SECOND_NS

HALF_DAY_S = 43_200.0
START_S = 20_000 * 86_400
MIB = 1 << 20
SEASONAL = Rule(Model.SEASONAL)


def minutes(forecast: Forecast, rule: Rule, *values: float, first: int = 0) -> None:
    for number, value in enumerate(values, first):
        forecast.learn(value, (START_S + number * 60) * SECOND_NS, rule)


@pytest.mark.parametrize(
    ("kind", "sample", "percentile", "peak"),
    [
        (CPU, 0.0, 25, 27),
        (CPU, 0.025, 51, 56),
        (CPU, 0.1, 107, 117),
        (CPU, 1.0, 1035, 1138),
        (CPU, 16.0, 16272, 17899),
        (MEMORY, 0.0, 5242880, 5767168),
        (MEMORY, 100.0 * MIB, 113133819, 124447200),
        (MEMORY, 1024.0 * MIB, 1097586419, 1207345060),
        (MEMORY, 65536.0 * MIB, 68883640381, 75772004419),
    ],
)
def test_amounts_of_the_reference(kind: Kind, sample: float, percentile: int, peak: int) -> None:
    """docs/reference/metrics.md, appendix: milli-cores and bytes, cut off twice."""
    forecast = Forecast(kind, HALF_DAY_S)
    minutes(forecast, Rule(), *[sample] * 5)
    assert forecast.percentile() == percentile
    assert forecast.peak(Model.REFERENCE, Rule()) == peak


def test_the_safety_margin_is_a_setting() -> None:
    forecast = Forecast(CPU, HALF_DAY_S)
    minutes(forecast, Rule(), 1.0)
    assert forecast.peak(Model.REFERENCE, Rule(safety_margin_percent=0)) == 1035
    assert forecast.peak(Model.REFERENCE, Rule(safety_margin_percent=25)) == 1293


def test_a_season_raises_the_peak_before_its_hour_and_never_lowers_it() -> None:
    forecast = Forecast(CPU, HALF_DAY_S)
    for day in range(3):
        for minute in range(1440):
            value = 4.0 if minute // 60 == 9 else 0.5
            time_s = START_S + day * 86_400 + minute * 60
            forecast.learn(value, time_s * SECOND_NS, SEASONAL)
            reference = forecast.peak(Model.REFERENCE, SEASONAL)
            assert forecast.peak(Model.SEASONAL, SEASONAL) >= reference
    # At 23:59 twelve hours and more have gone by: the reference has forgotten 9 o'clock.
    assert forecast.peak(Model.REFERENCE, SEASONAL) < 1000
    minutes(forecast, SEASONAL, 0.5, first=3 * 1440 + 8 * 60 + 5)
    assert forecast.peak(Model.REFERENCE, SEASONAL) < 1000
    assert 4000 <= forecast.peak(Model.SEASONAL, SEASONAL) <= 4300 * (1 + MOST_MARGIN)


def test_only_the_seasonal_model_has_a_season() -> None:
    forecast = Forecast(CPU, HALF_DAY_S)
    minutes(forecast, Rule(), 1.0)
    assert forecast.season is None
    assert forecast.peak(Model.SEASONAL, SEASONAL) == forecast.peak(Model.REFERENCE, Rule())
    minutes(forecast, SEASONAL, 1.0, first=1)
    assert forecast.season is not None
    minutes(forecast, Rule(), 1.0, first=2)
    assert forecast.season is None


def test_both_models_are_tested_beside_each_other() -> None:
    subject = Subject(HALF_DAY_S, HALF_DAY_S, START_S)
    for minute in range(200):
        subject.learn(1.0, 1e8, (START_S + minute * 60) * SECOND_NS, SEASONAL)
    scores = subject.cpu.test.scores
    assert {model: score.miss_ratio for model, score in scores.items()} == {
        Model.REFERENCE: 0.0,
        Model.SEASONAL: 0.0,
    }
    over = scores[Model.REFERENCE].over_ratio
    assert over == pytest.approx((1138 - 1000) / 1138)


def test_the_margin_of_a_season_grows_with_misses_up_to_a_bound() -> None:
    forecast = Forecast(CPU, HALF_DAY_S)
    minutes(forecast, SEASONAL, *[0.1] * 720, *[1.0] * 30)
    assert forecast.margin > 0.1
    minutes(forecast, SEASONAL, *([0.1] * 110 + [5.0]) * 40, first=750)
    assert forecast.margin <= MOST_MARGIN


def test_the_first_hour_is_not_tested() -> None:
    """The peak jumps after 40 minutes, which nobody could have known; at 60 it is known."""
    subject = Subject(HALF_DAY_S, HALF_DAY_S, START_S)
    for minute in range(180):
        cores = 0.1 if minute < 40 else 1.0
        subject.learn(cores, 1e8, (START_S + minute * 60) * SECOND_NS, Rule())
    score = subject.cpu.test.scores[Model.REFERENCE]
    assert (score.misses, round(score.tests)) == (0.0, 12)


def test_a_model_is_cold_until_it_has_watched_for_long_enough() -> None:
    """By the age of the model, not of the pod (D-17)."""
    subject = Subject(HALF_DAY_S, HALF_DAY_S, START_S)
    assert subject.is_cold(START_S + 86_400, 86_400)
    assert not subject.is_cold(START_S + 86_401, 86_400)
    assert subject.is_cold(START_S - 5, 0)


def test_a_clock_that_was_ahead_leaves_no_model_cold_for_years() -> None:
    subject = Subject(HALF_DAY_S, HALF_DAY_S, START_S + 1e9)
    subject.learn(1.0, 1e8, START_S * SECOND_NS, Rule())
    assert not subject.is_cold(START_S + 90_000, 86_400)


def test_the_reference_names_of_the_nodes_items() -> None:
    assert [uid_of_item(each) for each in ITEMS] == [
        "__node-koord-prod__",
        "__node-koord-mid__",
        "__node-koord-batch__",
        "__node-koord-free__",
        "__node-__",
        "__node-sys__",
    ]
    assert NODE_UIDS[0] == "__node__"
