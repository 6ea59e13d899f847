"""The synthetic days, and that the arms are judged by what came after."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from bench.days import KINDS, LIMIT_CORES, MINUTES, Load, loads, node_sums
from bench.prediction import ARMS, RULE, Seen, contest
from bench.prediction_rounds import rounds


def test_the_same_seed_makes_the_same_days() -> None:
    once, again, other = loads(1, 2), loads(1, 2), loads(2, 2)
    assert once == again
    assert once != other
    assert [load.name for load in once] == list(KINDS)
    for load in once:
        assert len(load.cores) == 2 * MINUTES
        assert 0 < min(load.cores) <= max(load.cores) <= LIMIT_CORES


def test_offices_are_calm_by_night_and_at_weekends() -> None:
    office = loads(1, 7)[0].cores

    def mean(day: int, hour: int) -> float:
        first = day * MINUTES + hour * 60
        return sum(office[first : first + 60]) / 60

    assert mean(1, 13) > 1.5 * mean(1, 3)
    assert mean(1, 13) > 1.2 * mean(5, 13)


def test_a_node_uses_what_its_loads_use() -> None:
    some = loads(1, 1)
    (node,) = node_sums(some, 1, 1)
    assert node.limit == 6 * LIMIT_CORES
    assert any(
        all(
            math.isclose(sum(load.cores[minute] for load in six), node.cores[minute])
            for minute in (0, 700, MINUTES - 1)
        )
        for six in combinations(some, 6)
    )


def test_a_constant_is_missed_by_nobody_with_a_margin() -> None:
    found = contest([Load("constant", 2.0, [1.0] * (4 * MINUTES))])
    assert set(found) == set(ARMS)
    for name, tally in found.items():
        assert tally.tests == 287, name  # the day after the first three, without its first step
        assert tally.misses == 0, name
    # 1.0358 * 1.1 of a limit of 2
    reference = found["reference: p95 x 1.1, 12 h"]
    assert reference.over / reference.tests == pytest.approx((1.03576 * 1.1 - 1) / 2, rel=1e-4)
    assert reference.free / reference.tests == pytest.approx((2 - 1.03576 * 1.1) / 2, rel=1e-4)


def test_what_is_shipped_is_never_below_the_reference() -> None:
    """Two days of which each has an hour of load, so that the season has something to say."""
    seen, name = Seen(), "seasonal (as shipped)"
    above = 0
    for minute in range(2 * MINUTES):
        cores = 3.0 if minute % MINUTES < 60 else 0.5
        time_s = 1_800_000_000 + minute * 60
        seen.time_s = time_s
        seen.short.add(cores, time_s * 10**9)
        seen.shipped.learn(cores, time_s * 10**9, RULE)
        shipped, reference = ARMS[name](seen, 0.2), ARMS["reference: p95 x 1.1, 12 h"](seen, 0.0)
        assert shipped >= int(1000 * reference) / 1000 - 0.002  # whole milli-cores, cut off twice
        above += shipped > 1.5 * reference
    assert above > 30


def test_rounds_are_measured() -> None:
    figures = {each.name: each.value for each in rounds(3, 2)}
    assert figures["reference, 3 pods: CPU of a round, p50"] > 0
    assert figures["seasonal, 3 pods: CPU of a tick, worst"] > 0
