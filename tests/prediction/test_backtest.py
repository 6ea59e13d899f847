"""When a prediction is compared, with what, and what becomes of the margin."""

from __future__ import annotations

import math

import pytest

from koordlet.prediction.backtest import (
    MOST_MARGIN,
    STEP_S,
    TARGET,
    BackTest,
    Model,
    Score,
    adapted,
)

REF, SEASON = Model.REFERENCE, Model.SEASONAL
STEPS = 12


def step(test: BackTest, number: int, peak: float, *predicted: float) -> list[tuple[Model, bool]]:
    """Five minutes with one sample, after predictions at their beginning."""
    time_s = 1_000_000 * STEP_S + number * STEP_S + 10.0
    assert test.begins(time_s)
    found = list(test.turn(time_s))
    test.expect(dict(zip((REF, SEASON), predicted, strict=False)))
    assert not test.begins(time_s)
    test.see(peak)
    return found


def test_a_prediction_is_tested_when_its_hour_has_passed() -> None:
    test = BackTest()
    for number in range(STEPS):
        assert step(test, number, 50.0, 100.0) == []
    # The first one covered steps 0 to 11.
    assert step(test, 12, 50.0, 100.0) == [(REF, False)]
    assert test.scores[REF] == Score(tests=1, misses=0, predicted=100, unused=50)


def test_the_peak_is_the_highest_sample_of_exactly_its_hour() -> None:
    test = BackTest()
    peaks = [10.0] * 30
    peaks[0], peaks[13] = 500.0, 300.0
    missed = []
    for number, peak in enumerate(peaks):
        missed += [(number, was) for _, was in step(test, number, peak, 100.0)]
    # Tested at 12: made at 0, sees the 500. Tested at 13: made at 1, sees 1 to 12 and not the 300
    # of 13, which those see that were made at 2 to 13 and are tested at 14 to 25.
    expected = [(12, True), (13, False), *((n, True) for n in range(14, 26))]
    assert missed == [*expected, *((n, False) for n in range(26, 30))]


def test_what_equals_the_prediction_is_no_miss() -> None:
    score = Score()
    assert not score.take(100.0, 100.0)
    assert score.take(100.0, 100.5)
    assert score.over_ratio == 0.0


def test_each_model_is_tested_against_the_same_peak() -> None:
    test = BackTest()
    for number in range(STEPS):
        step(test, number, 50.0, 40.0, 80.0)
    assert step(test, 12, 50.0, 40.0, 80.0) == [(REF, True), (SEASON, False)]
    assert test.scores[REF].unused == 0.0
    assert test.scores[SEASON].over_ratio == pytest.approx(30 / 80)


def test_a_model_that_is_dropped_loses_its_score() -> None:
    test = BackTest()
    for number in range(STEPS + 1):
        step(test, number, 50.0, 40.0, 80.0)
    step(test, 13, 50.0, 40.0)
    assert set(test.scores) == {REF}
    # And one that comes back begins anew, an hour before its first test.
    found = [step(test, 14 + number, 50.0, 40.0, 80.0) for number in range(13)]
    assert [len(each) for each in found] == [1] * 12 + [2]


def test_a_score_of_an_earlier_run_goes_on_or_goes() -> None:
    test = BackTest()
    test.scores = {REF: Score(tests=100, misses=10), SEASON: Score(tests=100)}
    step(test, 0, 50.0, 100.0)
    assert test.scores == {REF: Score(tests=100, misses=10)}


def test_what_nobody_predicted_is_not_tested() -> None:
    test = BackTest()
    for number in range(STEPS):
        step(test, number, 50.0, math.nan if number < 3 else 100.0)
    assert [bool(step(test, 12 + n, 50.0, 100.0)) for n in range(4)] == [False, False, False, True]


def test_a_gap_of_some_steps_keeps_what_waits() -> None:
    test = BackTest()
    for number in range(STEPS):
        step(test, number, 50.0, 100.0)
    # Nothing is measured in steps 12 and 13: three predictions come due at once, and none was made
    # in the gap.
    assert step(test, 14, 200.0, 100.0) == [(REF, False)] * 3
    due = [len(step(test, 15 + number, 50.0, 100.0)) for number in range(12)]
    assert due == [1] * 9 + [0, 0, 1]


@pytest.mark.parametrize("number", [12 + STEPS, 5])
def test_a_long_gap_or_a_clock_set_back_drops_what_waits(number: int) -> None:
    test = BackTest()
    for each in range(STEPS):
        step(test, each, 50.0, 100.0)
    found = [step(test, number + each, 50.0, 100.0) for each in range(13)]
    assert [len(each) for each in found] == [0] * 12 + [1]


def test_scores_are_of_about_the_last_day() -> None:
    score = Score()
    for _ in range(288):
        score.take(1.0, 2.0)
    assert score.miss_ratio == 1.0
    for _ in range(288):
        score.take(4.0, 2.0)
    assert score.miss_ratio == pytest.approx(1 / 3)  # a half against a whole
    assert score.over_ratio == pytest.approx(2 / 4.5)


def test_sums_of_scores() -> None:
    total = Score()
    total.add(Score(4, 1, 100, 40))
    total.add(Score(6, 1, 300, 20))
    assert (total.miss_ratio, total.over_ratio) == (0.2, 0.15)


def test_the_margin_follows_its_misses() -> None:
    assert adapted(0.1, True) == pytest.approx(0.1 + 0.02 * 0.98)
    assert adapted(0.1, False) == pytest.approx(0.1 - 0.02 * 0.02)
    assert adapted(0.0, False) == 0.0
    assert adapted(MOST_MARGIN, True) == MOST_MARGIN
    margin = 0.1
    for number in range(5000):
        margin = adapted(margin, number % 50 == 0)  # the share that it aims at
    assert margin == pytest.approx(0.1, abs=0.02)
    assert TARGET == 1 / 50
