"""From counters to rates and quantiles, with numbers made by hand."""

from __future__ import annotations

import pytest

from koordlet.collectors.waits.figures import (
    MOST_CULPRITS,
    Part,
    added,
    bounds_us,
    growth,
    parts,
    quantile_us,
    rows,
    slots_since,
    worst,
)
from koordlet.collectors.waits.groups import Group, Kind, group_of
from koordlet.collectors.waits.suspicion import Recent, Suspicion
from koordlet.kernel.bpf.run_queue import OLDER, THROTTLED

A, B, C = Group(Kind.POD, "a"), Group(Kind.POD, "b"), Group(Kind.APPLICATION, "c")
SYSTEM = Group(Kind.SYSTEM, "system.slice/ssh.service")
KERNEL = Group(Kind.KERNEL, "")


def test_only_what_grew_is_there_and_a_new_counter_counts_from_zero() -> None:
    now = {1: {5: 30, 6: 7}, 2: {5: 1}}
    before = {1: {5: 10, 6: 7}}
    assert growth(now, before) == {1: {5: 20}, 2: {5: 1}}


def test_a_counter_below_its_earlier_value_began_anew() -> None:
    assert growth({1: {7: 4}}, {1: {7: 9}}) == {1: {7: 4}}
    assert slots_since((1, 2), (5, 2)) == (1, 2)
    assert slots_since((6, 2), (5, 2)) == (1, 0)
    assert slots_since((6, 2), None) == (6, 2)


def test_the_recent_time_has_its_own_part_of_waits_for_others() -> None:
    """10 s with 450 ms for others, 400 of them in the last second."""
    calm, now = parts(10.0, 450, Recent(400, 1.0))
    assert (calm.span_s, now.span_s) == (9.0, 1.0)
    assert (calm.others, now.others) == pytest.approx((1 / 9, 8 / 9))
    assert (calm.rest, now.rest) == pytest.approx((0.9, 0.1))
    assert parts(10.0, 450, None) == (Part(10.0),)
    assert parts(1.1, 450, Recent(400, 1.0)) == (Part(1.1),)
    assert parts(10.0, 0, Recent(0, 1.0))[1] == Part(1.0, 0.1, 0.1)


def test_waits_for_nobody_else_are_spread_over_all_of_the_time() -> None:
    victim_of = {1: A, 2: A}
    culprit_of = {
        1: A,
        2: A,
        5: B,
        THROTTLED: Group(Kind.THROTTLED, ""),
        OLDER: Group(Kind.OLDER, ""),
    }.__getitem__
    grown = {1: {1: 10_000_000, 5: 10_000_000, THROTTLED: 20_000_000, OLDER: 5_000_000}}
    row = rows(grown, victim_of, culprit_of, Part(1.0, others=1.0, rest=0.1))[A]
    assert row == {
        Group(Kind.SELF, ""): pytest.approx(1.0),
        B: 10.0,
        Group(Kind.THROTTLED, ""): pytest.approx(2.0),
        Group(Kind.OLDER, ""): pytest.approx(0.5),
    }


def test_trouble_is_measured_since_a_while_ago_and_not_since_a_moment() -> None:
    """An alarm comes between two rounds, at 1.9 s."""
    suspicion = Suspicion(50.0)
    assert not suspicion.arises(0.0, 0)
    assert not suspicion.arises(1.0, 1_000_000)
    assert suspicion.arises(1.9, 101_000_000)
    assert suspicion.recent == (100_000_000, pytest.approx(0.9))
    assert suspicion.arises(2.0, 111_000_000)
    assert suspicion.recent == (110_000_000, pytest.approx(1.0))
    assert not suspicion.arises(3.0, 111_000_000)


def test_rows_add_up_the_cgroups_of_a_group_and_call_its_own_self() -> None:
    victim_of = {1: A, 2: A, 3: C}
    culprit_of = {1: A, 2: A, 5: B, 6: B, 9: SYSTEM}.__getitem__
    grown = {1: {2: 4_000_000, 5: 10_000_000}, 2: {6: 6_000_000, 9: 2_000_000}, 8: {5: 1}}
    assert rows(grown, victim_of, culprit_of, Part(2.0)) == {
        A: {Group(Kind.SELF, ""): 2.0, B: 8.0, SYSTEM: 1.0}
    }


def test_the_eight_worst_are_named_and_the_others_are_one() -> None:
    row = {Group(Kind.POD, f"p{n:02}"): float(n) for n in range(1, 12)} | {SYSTEM: 0.5, KERNEL: 0.1}
    found = worst(row)
    assert len(found) == MOST_CULPRITS + 2
    assert found[Group(Kind.REST, "")] == 1 + 2 + 3 + 0.5
    assert found[KERNEL] == 0.1
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
    assert group_of("system.slice/ssh.service/deeper", known) == SYSTEM
    for path, name in (
        ("user.slice/user-0.slice/session-3.scope", "user.slice/user-0.slice/session-3.scope"),
        ("machine.slice", "machine.slice"),
        ("docker/4711/x", "docker"),
        ("a.slice/" * 40, "a.slice/" * 5 + "a.slice"),
    ):
        assert group_of(path, known) == Group(Kind.SYSTEM, name)
    assert group_of("", known) == Group(Kind.SYSTEM, "/")
