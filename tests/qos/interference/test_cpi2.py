"""CPI2's rule, with numbers made by hand."""

from __future__ import annotations

import pytest

from koordlet.qos.interference.cpi2 import Cpi, Window, best_suspect, correlation, judge
from koordlet.qos.interference.windows import Who


def _run(*windows: float) -> Cpi:
    found = Cpi()
    for cpi in windows:
        found = judge(found, cpi)
    return found


def test_an_outlier_is_two_sigmas_above_the_mean_and_not_learnt_from() -> None:
    steady = _run(*[2.0] * 20)
    assert steady.mean == pytest.approx(2.0)
    assert steady.limit == pytest.approx(2.0 + 2 * 0.05 * 2.0)
    assert not judge(steady, 2.19).bad[0]
    hit = judge(steady, 2.3)
    assert hit.bad[0]
    assert hit.mean == steady.mean


def test_three_of_five_windows() -> None:
    assert not _run(*[2.0] * 20, 3.0, 2.0, 3.0).is_outlier
    assert _run(*[2.0] * 20, 3.0, 2.0, 3.0, 2.0, 3.0).is_outlier


def test_a_suspect_is_busy_when_the_victim_is_slow() -> None:
    cpi = (2.0, 2.0, 4.0, 4.0)
    assert correlation(cpi, (0.0, 0.0, 1.0, 1.0), 2.5) == pytest.approx(1 - 2.5 / 4)
    assert correlation(cpi, (1.0, 1.0, 0.0, 0.0), 2.5) == pytest.approx(2 / 2.5 - 1)
    # Always busy: as often beside the good windows as beside the bad.
    assert correlation(cpi, (1.0, 1.0, 1.0, 1.0), 2.5) == pytest.approx((0.375 - 0.2) / 2)
    assert correlation(cpi, (0.0, 0.0, 0.0, 0.0), 2.5) == 0.0


def test_the_best_suspect_is_one_and_of_equals_the_first_by_name() -> None:
    def windows(**use: tuple[float, float]) -> list[Window]:
        each = {Who("pod", name): values for name, values in use.items()}
        return [
            Window(cpi, {who: values[at] for who, values in each.items()})
            for at, cpi in enumerate((2.0, 4.0))
        ]

    found = best_suspect(windows(calm=(1.0, 0.0), sort=(0.0, 1.0), copy=(0.0, 2.0)), 2.5)
    assert found == (Who("pod", "copy"), pytest.approx(1 - 2.5 / 4))
    assert best_suspect(windows(calm=(1.0, 0.0)), 2.5) is None
    assert best_suspect([], 2.5) is None
