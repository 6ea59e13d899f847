"""Aggregation rules of docs/reference/metrics.md 3.1, with its numeric vectors."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb.aggregates import (
    PERMILLE,
    Interval,
    Pool,
    condense,
    rank,
    select,
    spread,
    summarise,
)

FLOATS = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize(
    ("how", "count", "index"),
    [
        *((Aggregate.P50, n, i) for n, i in ((1, 0), (3, 0), (10, 4), (300, 149))),
        *((Aggregate.P90, n, i) for n, i in ((10, 8), (60, 53), (100, 89))),
        *((Aggregate.P95, n, i) for n, i in ((1, 0), (10, 8), (20, 18), (300, 284))),
        *((Aggregate.P99, n, i) for n, i in ((10, 8), (100, 98), (1800, 1781))),
    ],
)
def test_rank_is_the_reference_s(how: Aggregate, count: int, index: int) -> None:
    assert rank(count, PERMILLE[how]) == index


def test_rank_is_what_double_precision_gives_below_8000() -> None:
    for permille in PERMILLE.values():
        for count in range(1, 8000):
            assert rank(count, permille) == max(math.trunc(count * (permille / 1000)) - 1, 0)


def test_golden_aggregates() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0, 10.0, 6.0, 9.0, 7.0, 8.0]
    golden = {
        Aggregate.AVG: 5.5,
        Aggregate.P50: 5.0,
        Aggregate.P90: 9.0,
        Aggregate.P95: 9.0,
        Aggregate.P99: 9.0,
        Aggregate.LAST: 8.0,
        Aggregate.COUNT: 10.0,
        Aggregate.MIN: 1.0,
        Aggregate.MAX: 10.0,
    }
    assert set(golden) == set(Aggregate)
    pool = Pool(list(Aggregate))
    pool.add(range(10), array("f", values))
    for how, value in golden.items():
        assert summarise(values, how) == value
        result = pool.result(how, 0)
        assert result is not None
        assert (result.value, result.count, result.first_ms, result.last_ms) == (value, 10, 0, 9)


@pytest.mark.parametrize("how", list(Aggregate))
def test_empty_is_none_and_a_count_of_nothing_is_zero(how: Aggregate) -> None:
    expected = 0.0 if how is Aggregate.COUNT else None
    assert summarise([], how) == expected
    result = Pool((how,)).result(how, 123)
    if expected is None:
        assert result is None
    else:
        assert result is not None
        assert (result.value, result.count, result.first_ms, result.last_ms) == (0.0, 0, 123, 123)


def test_span_covers_all_series_and_the_first_seen_wins_a_tie() -> None:
    pool = Pool((Aggregate.LAST,))
    pool.add([5, 20], array("f", [1.0, 2.0]))
    pool.add([10, 20], array("f", [3.0, 4.0]))
    pool.add([7], array("f", [9.0]))
    result = pool.result(Aggregate.LAST, 0)
    assert result is not None
    assert (result.value, result.count, result.first_ms, result.last_ms) == (2.0, 5, 5, 20)


def test_gaps_are_no_points() -> None:
    pool = Pool((Aggregate.AVG,))
    pool.add([1, 2, 3], array("f", [math.nan, 4.0, math.nan]))
    pool.add([9], array("f", [math.nan]))
    result = pool.result(Aggregate.AVG, 0)
    assert result is not None
    assert (result.value, result.count, result.first_ms, result.last_ms) == (4.0, 1, 2, 2)


@given(
    st.lists(st.one_of(FLOATS, st.sampled_from([0.0, 1.0])), min_size=1, max_size=400), st.data()
)
def test_select_is_the_sorted_order(values: list[float], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(values) - 1))
    assert select(values, index) == sorted(values)[index]


@given(st.lists(FLOATS, min_size=1, max_size=50), st.sampled_from(list(PERMILLE)))
def test_many_points_are_counted_without_changing_a_percentile(
    values: list[float], how: Aggregate
) -> None:
    pool = Pool((how,))
    many = array("f", values) * 3000
    for _ in range(3):
        pool.add(range(len(many)), many)
    result = pool.result(how, 0)
    assert result is not None
    assert result.value == sorted(list(many) * 3)[rank(len(many) * 3, PERMILLE[how])]


@given(st.lists(FLOATS, min_size=1, max_size=200))
def test_an_interval_keeps_count_bounds_and_p95(values: list[float]) -> None:
    interval = condense(values)
    assert interval is not None
    points = spread(interval)
    assert len(points) == len(values)
    assert points == sorted(points)
    assert (points[-1], points[rank(len(points), 950)]) == (interval.high, interval.p95)
    assert points[0] >= interval.low == min(values)
    assert interval.mean == pytest.approx(sum(values) / len(values), abs=1e-9)


def test_an_interval_without_points_is_none() -> None:
    assert condense([math.nan, math.nan]) is None


def test_intervals_pool_by_their_points() -> None:
    pool = Pool((Aggregate.AVG, Aggregate.P95))
    pool.add_interval(60_000, Interval(60, 1.0, 0.5, 1.5, 2.0))
    pool.add([120_000, 121_000], array("f", [10.0, 20.0]))
    average = pool.result(Aggregate.AVG, 0)
    assert average is not None
    assert average.value == pytest.approx(90 / 62)
    assert average.count == 62
    assert pool.result(Aggregate.MIN, 0).value == 0.5  # type: ignore[union-attr]
    assert pool.result(Aggregate.LAST, 0).value == 20.0  # type: ignore[union-attr]
    assert pool.result(Aggregate.P95, 0).value == 2.0  # type: ignore[union-attr]
