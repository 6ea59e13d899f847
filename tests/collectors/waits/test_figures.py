"""From counters to rates and quantiles, with numbers made by hand."""

from __future__ import annotations

import pytest

from koordlet.collectors.waits.figures import (
    MOST_CULPRITS,
    added,
    bounds_us,
    growth,
    quantile_us,
    rows,
    worst,
)
from koordlet.collectors.waits.groups import Group, Kind, group_of

A, B, C = Group(Kind.POD, "a"), Group(Kind.POD, "b"), Group(Kind.APPLICATION, "c")
SYSTEM = Group(Kind.SYSTEM, "system.slice")


def test_only_what_grew_is_there_and_a_new_counter_counts_from_zero() -> None:
    now = {1: {5: 30, 6: 7, 7: 4}, 2: {5: 1}}
    before = {1: {5: 10, 6: 7, 7: 9}}
    assert growth(now, before) == {1: {5: 20}, 2: {5: 1}}


def test_rows_add_up_the_cgroups_of_a_group_and_call_its_own_self() -> None:
    victim_of = {1: A, 2: A, 3: C}
    culprit_of = {1: A, 2: A, 5: B, 6: B, 9: SYSTEM}.__getitem__
    grown = {1: {2: 4_000_000, 5: 10_000_000}, 2: {6: 6_000_000, 9: 2_000_000}, 8: {5: 1}}
    assert rows(grown, victim_of, culprit_of, span_s=2.0) == {
        A: {Group(Kind.SELF, ""): 2.0, B: 8.0, SYSTEM: 1.0}
    }


def test_the_eight_worst_are_named_and_the_others_are_one() -> None:
    row = {Group(Kind.POD, f"p{n:02}"): float(n) for n in range(1, 12)} | {SYSTEM: 0.5}
    found = worst(row)
    assert len(found) == MOST_CULPRITS + 2
    assert found[Group(Kind.REST, "")] == 1 + 2 + 3
    assert found[SYSTEM] == 0.5
    assert sum(found.values()) == sum(row.values())


def test_quantiles_are_interpolated_within_a_power_of_two() -> None:
    assert quantile_us((0, 0, 0), 0.5) is None
    assert bounds_us(0) == (0.0, 1.024)
    assert bounds_us(3) == (4.096, 8.192)
    # Ten below 1.024 us, ten from 4.096 to 8.192: the median is the end of the first ten.
    assert quantile_us((10, 0, 0, 10), 0.5) == pytest.approx(1.024)
    assert quantile_us((10, 0, 0, 10), 0.75) == pytest.approx(6.144)
    assert quantile_us((10, 0, 0, 10), 1.0) == pytest.approx(8.192)


def test_distributions_are_added_slot_by_slot() -> None:
    assert added([(1, 2, 3), (10, 0, 1)]) == (11, 2, 4)


def test_a_cgroup_belongs_to_the_longest_path_that_is_known() -> None:
    known = {"kubepods/podA": A, "kubepods/podA/inner": B, "shop.slice": C}
    assert group_of("kubepods/podA/x/y", known) == A
    assert group_of("kubepods/podA/inner/z", known) == B
    assert group_of("shop.slice", known) == C
    assert group_of("system.slice/ssh.service", known) == SYSTEM
    assert group_of("", known) == Group(Kind.SYSTEM, "/")
