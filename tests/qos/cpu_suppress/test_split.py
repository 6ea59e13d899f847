"""Sharing one quota among several cgroups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.qos.cpu_suppress.split import QuotaShare, demand, split

FLOOR = 2_000
ANY = 1_000_000


@pytest.mark.parametrize(
    ("total", "demands", "caps", "expected"),
    [
        (130_000, [130_000], [ANY], [130_000]),
        (130_000, [0], [ANY], [130_000]),  # a lone target gets everything
        (100_000, [100_000, 100_000], [ANY, ANY], [50_000, 50_000]),
        (100_000, [3_000, 100_000], [ANY, ANY], [3_000, 97_000]),  # idle: lent
        (100_000, [100_000, 100_000], [20_000, ANY], [20_000, 80_000]),  # growing by its step
        (100_000, [10_000, 20_000], [ANY, ANY], [50_000, 50_000]),  # enough for both
        (100_000, [10_000, 60_000], [ANY, ANY], [40_000, 60_000]),
        (4_000, [100_000, 100_000], [ANY, ANY], [2_000, 2_000]),
        (90_000, [90_000] * 3, [ANY, ANY, 10_000], [40_000, 40_000, 10_000]),
        (90_000, [90_000] * 2, [10_000, 10_000], [10_000, 10_000]),
    ],
)
def test_split(total, demands, caps, expected) -> None:
    assert list(split(total, demands, caps, FLOOR)) == expected


@given(st.data(), st.integers(1, 6), st.integers(0, 10_000_000))
def test_never_more_than_there_is_nor_less_than_the_floor(data, count: int, more: int) -> None:
    total = FLOOR * count + more
    some = st.lists(st.integers(0, 2 * total), min_size=count, max_size=count)
    demands = [float(d) for d in data.draw(some)]
    caps = [max(cap, FLOOR) for cap in data.draw(some)]
    given_us = split(total, demands, caps, FLOOR)
    assert sum(given_us) <= total
    assert all(FLOOR <= value <= cap for value, cap in zip(given_us, caps, strict=True))
    # Nothing is left over while somebody may take more (up to rounding by count).
    if sum(given_us) <= total - count:
        assert list(given_us) == caps


@pytest.mark.parametrize(
    ("usage", "quota", "last", "elapsed", "expected"),
    [
        (None, 50_000, None, 1.0, 130_000),  # no sample: as much as it gets
        (50_000, 50_000, None, 1.0, 130_000),  # held back
        (40_000, 50_000, None, 1.0, 50_000),
        (40_000, None, None, 1.0, 50_000),  # not limited: 25 % above what it uses
        (0, 50_000, QuotaShare(50_000, 130_000), 1.0, 65_000),  # given up by half each second
        (0, 50_000, QuotaShare(50_000, 130_000), 0.0, 130_000),
        (400_000, None, None, 1.0, 130_000),
    ],
)
def test_demand(usage, quota, last, elapsed, expected) -> None:
    assert demand(usage, quota, last, 130_000, elapsed) == expected
