"""Recommendations made of the past alone against what came (figures: bench/central/recommend)."""

from __future__ import annotations

import pytest

from bench.central import recommend as bench_of_it
from bench.central.workloads import KINDS, START_S, samples
from koord_scheduler.recommend.backtest import Sample, back_test
from koord_scheduler.recommend.history import MIB
from koord_scheduler.recommend.policy import DAY_S, HOUR_S, Policy
from koord_scheduler.recommend.target import ContainerUsage

MOST_MISSED = {"growing": 0.06, "released": 0.06, "bursty": 0.03, "nightly": 0.03}
"""Of the samples of CPU. Growth and releases are what no past tells of."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missed_and_what_is_given(kind: str) -> None:
    found = back_test(samples(kind, 21, pods=2), Policy(), after_s=7 * DAY_S)
    assert found.tried == 2 * 14 * 288
    assert found.cpu_missed <= MOST_MISSED.get(kind, 0.015)
    assert found.memory_missed <= 0.025
    assert found.memory_excess <= 0.2
    if kind != "nightly":  # which idles for most of the day
        assert found.cpu_over < 3 and found.memory_over < 1.5


def test_a_longer_half_life_outlasts_a_weekend_and_a_day_without_work() -> None:
    short = Policy(cpu_half_life_s=12 * HOUR_S)
    for kind in ("weekly", "nightly"):
        forgetful = back_test(samples(kind, 21), short, after_s=7 * DAY_S)
        shipped = back_test(samples(kind, 21), Policy(), after_s=7 * DAY_S)
        assert shipped.cpu_missed < forgetful.cpu_missed / 2


def test_figures_by_hand() -> None:
    usage = ContainerUsage("main", 500, 100 * MIB)
    more = ContainerUsage("main", 1188, 57 * MIB)
    calm = [Sample(START_S + n * 300.0, (usage,)) for n in range(24)]
    found = back_test(
        [*calm, Sample(START_S + 7200.0, (more,))], Policy(least_history_s=HOUR_S), every_s=HOUR_S
    )
    # From 3,600 s on 594 milli-cores and 119 MiB stand: 12 samples within, one above.
    assert found.tried == 13
    assert found.cpu_missed == pytest.approx(1 / 13) and found.memory_missed == 0
    assert found.cpu_excess == pytest.approx(1.0) and found.memory_excess == 0
    assert found.cpu_over == pytest.approx(13 * 594 / (12 * 500 + 1188))
    assert found.memory_over == pytest.approx(13 * 119 / (12 * 100 + 57))


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sample"):
        back_test(samples("steady", 0.01), Policy())


def test_the_bench_tests_every_kind() -> None:
    assert set(bench_of_it.tested(Policy(), 2, 1)) == set(KINDS)
