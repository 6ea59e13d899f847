"""The reference's histograms, against figures of the reference itself.

``SERIES``, their percentiles and weights come from a Go program that fed koordinator v1.8.0's
``pkg/util/histogram`` with the samples of ``samples``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.protocol.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    SECOND_NS,
    ZERO_NS,
    Buckets,
    Histogram,
)

HOUR_S = 3600
MIB = 1 << 20
START_NS = int(datetime(2026, 11, 23, 7, 13, 21, tzinfo=UTC).timestamp()) * SECOND_NS + 500_000_000


def samples(count: int, scale: float) -> Iterator[float]:
    """Numbers that any language makes the same."""
    state = 12345
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        uniform = (state >> 11) / float(1 << 53)
        yield scale * (0.2 + uniform * uniform * 3)


def fed(
    buckets: Buckets, half_life_h: int, count: int, step_s: int, scale: float, jump_after: int = -1
) -> Histogram:
    """``jump_after``: sample after which 150 half-lives pass."""
    histogram = Histogram(buckets, half_life_h * HOUR_S * SECOND_NS)
    time_ns = START_NS
    for number, value in enumerate(samples(count, scale)):
        histogram.add(value, time_ns)
        time_ns += step_s * SECOND_NS
        if number == jump_after:
            time_ns += 150 * histogram.half_life_ns
    return histogram


def unix_ns(year: int, month: int, day: int, hour: int) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * SECOND_NS


def test_as_many_buckets_as_the_reference_has() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (158, 205)


@pytest.mark.parametrize(
    ("buckets", "bucket", "start"),
    [
        (CPU_BUCKETS, 0, 0.0),
        (CPU_BUCKETS, 1, 0.025),
        (CPU_BUCKETS, 2, 0.051249999999999976),
        (CPU_BUCKETS, 71, 15.47387340614477),
        (CPU_BUCKETS, 157, 1060.4378860261741),
        (MEMORY_BUCKETS, 1, 5 * MIB),
        (MEMORY_BUCKETS, 49, 1040327180.7377567),
        (MEMORY_BUCKETS, 204, 2203922208858.5283),
    ],
)
def test_bounds_are_those_of_the_reference(buckets: Buckets, bucket: int, start: float) -> None:
    assert buckets.starts[bucket] == start


@pytest.mark.parametrize("buckets", [CPU_BUCKETS, MEMORY_BUCKETS])
def test_a_value_on_an_edge_falls_into_the_lower_bucket(buckets: Buckets) -> None:
    """In the reference too, by rounding; the first edge alone is exact."""
    found = [buckets.find(start) for start in buckets.starts]
    assert found == [0, 1, *range(1, buckets.count - 1)]


@pytest.mark.parametrize(
    ("buckets", "value", "bucket", "end"),
    [
        (CPU_BUCKETS, 0.0, 0, 0.025),
        (CPU_BUCKETS, -1.0, 0, 0.025),
        (CPU_BUCKETS, 0.025, 1, 0.05125),
        (CPU_BUCKETS, 0.1, 3, 0.107753125),
        (CPU_BUCKETS, 1.0, 22, 1.035762),
        (CPU_BUCKETS, 16.0, 71, 16.272567),
        (CPU_BUCKETS, 5000.0, 157, 1060.437886),
        (MEMORY_BUCKETS, 0.0, 0, 5242880),
        (MEMORY_BUCKETS, 100 * MIB, 14, 113133819),
        (MEMORY_BUCKETS, 1024 * MIB, 49, 1097586419),
        (MEMORY_BUCKETS, 65536 * MIB, 132, 68883640381),
    ],
)
def test_a_constant_is_predicted_at_the_end_of_its_bucket(
    buckets: Buckets, value: float, bucket: int, end: float
) -> None:
    """The vectors of docs/reference/metrics.md, appendix."""
    histogram = Histogram(buckets, 12 * HOUR_S * SECOND_NS)
    for minute in range(10):
        histogram.add(value, START_NS + minute * 60 * SECOND_NS)
    assert buckets.find(value) == bucket
    for share in (0.01, 0.6, 0.95, 1.0):
        assert histogram.percentile(share) == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize(
    ("histogram", "percentiles", "total", "reference_ns"),
    [
        (
            fed(CPU_BUCKETS, 12, 3000, 60, 1),
            (1.2778363439721765, 2.692738644954487, 3.0199943560623224, 3.1959940738654384),
            13361.775958530781,
            unix_ns(2026, 11, 23, 12),
        ),
        (
            fed(MEMORY_BUCKETS, 24, 40, 37 * 60, 300 * MIB),
            (286623669.66556352, 837288753.20695114, 933858754.41066372, 1040327180.7377567),
            71.22312877748945,
            unix_ns(2026, 11, 23, 0),
        ),
        (  # a half-life that no day is a multiple of
            fed(CPU_BUCKETS, 7, 60, 23 * 60, 0.1),
            (0.10775312499999992, 0.23872772189453109, 0.27566410798925767, 0.31444731338872051),
            231.26749105567848,
            unix_ns(2026, 11, 23, 7),
        ),
        (  # after 100 half-lives weights are rescaled
            fed(CPU_BUCKETS, 1, 9000, 60, 10),
            (13.298832442409909, 26.820744388096902, 29.621120687876836, 31.127176722270676),
            113066918970667950.0,
            unix_ns(2026, 11, 27, 11),
        ),
        (  # and so they are when samples stop for 150 half-lives
            fed(CPU_BUCKETS, 12, 30, 60, 2, jump_after=20),
            (2.0015942710168919, 4.9606665646446073, 4.9606665646446073, 4.9606665646446073),
            6.996038626583102,
            unix_ns(2027, 2, 6, 12),
        ),
    ],
)
def test_percentiles_and_weights_are_those_of_the_reference(
    histogram: Histogram, percentiles: tuple[float, ...], total: float, reference_ns: int
) -> None:
    assert tuple(map(histogram.percentile, (0.6, 0.9, 0.95, 0.98))) == percentiles
    assert histogram.total == pytest.approx(total, rel=1e-14)  # libc's exponential is not Go's
    assert histogram.reference_ns == reference_ns


def test_an_empty_histogram_predicts_nothing() -> None:
    histogram = Histogram(CPU_BUCKETS, SECOND_NS)
    assert histogram.is_empty
    assert histogram.percentile(0.95) == 0.0
    assert histogram.reference_ns == ZERO_NS


def test_what_is_old_is_forgotten() -> None:
    histogram = Histogram(CPU_BUCKETS, HOUR_S * SECOND_NS)
    for hour in range(24):
        histogram.add(8.0 if hour < 12 else 1.0, START_NS + hour * HOUR_S * SECOND_NS)
    assert histogram.percentile(0.95) == pytest.approx(1.035762, rel=1e-6)
    assert histogram.percentile(1.0) > 8.0


def test_a_clock_that_was_ahead_blinds_it_for_no_time() -> None:
    """The reference would give every later sample a weight of nothing."""
    histogram = Histogram(CPU_BUCKETS, 12 * HOUR_S * SECOND_NS)
    histogram.add(64.0, unix_ns(2099, 1, 1, 0))
    histogram.add(1.0, START_NS)
    assert histogram.percentile(1.0) == pytest.approx(1.035762, rel=1e-6)
    # A clock that is set back by less only makes a sample lighter.
    histogram.add(2.0, START_NS - 24 * HOUR_S * SECOND_NS)
    assert histogram.percentile(1.0) > 2.0
    assert histogram.percentile(0.7) < 2.0


@given(
    st.lists(
        st.tuples(st.floats(0, 1e13), st.integers(0, 1 << 62)),
        min_size=1,
        max_size=30,
    )
)
def test_any_samples_give_a_percentile_within_the_buckets(
    found: list[tuple[float, int]],
) -> None:
    histogram = Histogram(MEMORY_BUCKETS, HOUR_S * SECOND_NS)
    for value, time_ns in found:
        histogram.add(value, time_ns)
    percentiles = [histogram.percentile(share) for share in (0.1, 0.5, 0.98, 1.0)]
    assert percentiles == sorted(percentiles)
    assert 0 < percentiles[0] <= percentiles[-1] <= MEMORY_BUCKETS.starts[-1]
