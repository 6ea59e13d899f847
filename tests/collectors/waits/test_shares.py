"""Whose memory it was, with numbers made by hand."""

from __future__ import annotations

from koordlet.collectors.waits.shares import OLDER, blamed, stalls_since
from koordlet.kernel.bpf.stalls import MACHINE, Stall

LS, BE, OTHER = 11, 12, 13


def test_a_stall_is_divided_by_the_pages_that_each_took() -> None:
    stalls = {MACHINE: {LS: Stall(4, 900, 100), BE: Stall(30, 6000, 700), OTHER: Stall(1, 5, 100)}}
    assert blamed(stalls) == {
        LS: {LS: 100, BE: 700, OTHER: 100},
        BE: {LS: 667, BE: 4667, OTHER: 667},
        OTHER: {LS: 1, BE: 4, OTHER: 1},
    }


def test_those_below_another_limit_have_nothing_to_do_with_it() -> None:
    stalls = {70: {LS: Stall(1, 500, 10)}, 80: {BE: Stall(9, 9000, 5000)}}
    assert blamed(stalls) == {LS: {LS: 500}, BE: {BE: 9000}}


def test_the_limits_of_a_container_and_of_the_machine_add_up() -> None:
    stalls = {
        MACHINE: {LS: Stall(1, 100, 1), BE: Stall(1, 100, 3)},
        70: {LS: Stall(1, 1000, 64)},
    }
    assert blamed(stalls)[LS] == {LS: 25 + 1000, BE: 75}


def test_where_nobody_got_a_page_nobody_is_blamed() -> None:
    assert blamed({MACHINE: {LS: Stall(2, 300, 0)}}) == {LS: {OLDER: 300}}


def test_only_what_came_on_top_counts_and_a_counter_may_begin_anew() -> None:
    before = {MACHINE: {LS: Stall(5, 500, 50), BE: Stall(9, 90, 9), OTHER: Stall(8, 8, 8)}}
    now = {
        MACHINE: {LS: Stall(7, 800, 51), BE: Stall(9, 90, 9), OTHER: Stall(2, 20, 6)},
        70: {LS: Stall(1, 10, 1)},
    }
    assert stalls_since(now, before) == {
        MACHINE: {LS: Stall(2, 300, 1), OTHER: Stall(2, 20, 6)},
        70: {LS: Stall(1, 10, 1)},
    }
