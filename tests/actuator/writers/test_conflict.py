from __future__ import annotations

import msgspec

from koordlet.actuator.conflict import (
    LONGEST_WAIT_S,
    QUIET_S,
    Conflict,
    answered,
    is_over,
    may_write,
    notice,
)
from koordlet.decision.resource import Resource


def see(before: Conflict | None, found: int, now: float) -> Conflict:
    return notice(
        before,
        cgroup="be",
        resource=Resource.CPU_SHARES,
        path="/p",
        inode=7,
        expected=2,
        found=found,
        now=now,
        time=now,
    )


def test_the_first_time_ours_is_written_at_once() -> None:
    conflict = see(None, 7, now=10)
    assert may_write(conflict, 10) and conflict.changes == 1 and conflict.found == 7


def test_each_further_change_doubles_the_wait_up_to_five_minutes() -> None:
    conflict, now, waits = see(None, 7, now=0.0), 0.0, []
    for _ in range(12):
        conflict = see(answered(conflict), 7, now)
        waits.append(conflict.wait_s)
        assert not may_write(conflict, now) and may_write(conflict, now + conflict.wait_s)
        now += conflict.wait_s
    assert waits[:4] == [2, 4, 8, 16] and waits[-1] == LONGEST_WAIT_S


def test_another_value_during_the_wait_starts_it_anew_and_the_same_one_does_not() -> None:
    waiting = see(answered(see(None, 7, now=0)), 7, now=1)
    assert see(waiting, 7, now=2) == waiting
    other = see(waiting, 8, now=2)
    assert (other.changes, other.found, other.next_try) == (3, 8, 6)


def test_it_is_over_after_quiet_time_and_not_while_the_foreign_value_stands() -> None:
    conflict = see(None, 7, now=0)
    assert not is_over(conflict, 1e9)
    conflict = answered(conflict)
    assert not is_over(conflict, QUIET_S - 1) and is_over(conflict, QUIET_S)
    fresh = see(conflict, 9, now=QUIET_S)
    assert fresh == msgspec.structs.replace(see(None, 9, now=QUIET_S))
