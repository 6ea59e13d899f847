"""Reclaim in place of watermarks, and the watch over memory.high."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.plan import Decision
from koordlet.decision.resource import UNLIMITED
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.qos.memory_qos.high import CALM_S, STUCK_S, watch
from koordlet.qos.memory_qos.pace import (
    FIRST_STEP_BYTES,
    LEAST_STEP_BYTES,
    LONGEST_WAIT_S,
    MOST_STEP_BYTES,
)
from koordlet.qos.memory_qos.reclaim import AT_ONCE, free_target_bytes
from tests.qos.build import Kernel
from tests.qos.memory_qos.machine import (
    GIB,
    MIB,
    STOCK,
    VENDOR,
    R,
    decide,
    free,
    machine,
    on,
    pressure,
    sized,
    slo,
    stat,
    taken,
)

BOX = "kubepods/besteffort/podb/c0"
POD = "kubepods/besteffort/podb"
SPEC = slo(be=on())
NODE = machine(STOCK, 16 * GIB)


def kernel(
    used: int, stall_us: int = 0, refaults: int = 0, stolen: int = 0, cgroup: str = BOX
) -> Kernel:
    return Kernel(
        {
            (cgroup, R.MEMORY_USAGE): used,
            (cgroup, R.MEMORY_PRESSURE): pressure(stall_us),
            (cgroup, R.MEMORY_STAT): stat(refaults, stolen // 4096),
        }
    )


def step(known: Kernel, now: float, before: Decision | None = None, **fields: object) -> Decision:
    pods = [sized("b", "BE", "BestEffort", (0, GIB), batch=True)]
    fields = {"spec": SPEC, "pods": pods, "in_force": known, "now": now} | fields
    return decide(taken(fields.pop("node", NODE), **fields), before.memory if before else None)


def asked(decision: Decision) -> dict[str, int]:
    return {each.cgroup: each.size_bytes for each in decision.reclaims}


def test_above_the_watermark_down_to_the_lower_one() -> None:
    high = GIB * 95 // 100
    assert asked(step(kernel(high), 0)) == {}
    just = step(kernel(high + MIB), 0)
    assert asked(just) == {BOX: FIRST_STEP_BYTES}
    assert "above 95 %" in just.reclaims[0].why.text
    small = sized("b", "BE", "BestEffort", (0, 100 * MIB), batch=True)
    low = 100 * MIB * 95 // 100 - 100 * MIB * 20 // 1000
    near = step(kernel(100 * MIB), 0, pods=[small])
    assert asked(near) == {BOX: 100 * MIB - low}


def test_a_pod_and_its_container_are_not_asked_for_the_same_memory() -> None:
    known = kernel(GIB)
    known.values |= kernel(GIB + MIB, cgroup=POD).values
    first = step(known, 0)
    assert asked(first) == {POD: FIRST_STEP_BYTES}
    known.values |= kernel(GIB * 94 // 100, cgroup=POD).values  # another container gave it
    second = step(known, 1, first)
    assert asked(second) == {BOX: FIRST_STEP_BYTES}


def test_steps_double_while_it_costs_nothing_and_stop_when_it_hurts() -> None:
    first = step(kernel(GIB), 0)
    taken_once = FIRST_STEP_BYTES
    second = step(kernel(GIB, stolen=taken_once), 1, first)
    assert asked(second)[BOX] == 2 * FIRST_STEP_BYTES
    taken_twice = 3 * FIRST_STEP_BYTES
    waits = step(kernel(GIB, stall_us=200_000, stolen=taken_twice), 2, second)
    assert asked(waits) == {}
    calm = step(kernel(GIB, stall_us=200_000, stolen=taken_twice), 3, waits)
    assert asked(calm)[BOX] == FIRST_STEP_BYTES
    back = FIRST_STEP_BYTES // 4096
    refaults = step(kernel(GIB, 200_000, back, 4 * FIRST_STEP_BYTES), 4, calm)
    assert asked(refaults) == {}
    over = step(kernel(GIB // 2), 5, refaults)
    assert asked(over) == {}


def test_counters_are_in_pages_of_this_kernel() -> None:
    """Of 64 KiB each, a sixteenth of the number is as much."""
    rules = msgspec.structs.replace(NODE.rules, page_bytes=64 << 10)
    node = msgspec.structs.replace(NODE, rules=rules)
    first = step(kernel(GIB), 0, node=node)
    second = step(kernel(GIB, stolen=FIRST_STEP_BYTES // 16), 1, first, node=node)
    assert asked(second)[BOX] == 2 * FIRST_STEP_BYTES
    back = FIRST_STEP_BYTES // (64 << 10)
    stolen = 3 * FIRST_STEP_BYTES // 16
    refaults = step(kernel(GIB, refaults=back, stolen=stolen), 2, second, node=node)
    assert asked(refaults) == {}


def test_a_change_between_two_ticks_is_no_look_at_what_came_of_it() -> None:
    first = step(kernel(GIB), 0)
    change = step(kernel(GIB, stall_us=20_000), 0.05, first, wake=Wake(WakeKind.CHANGE))
    assert not change.reclaims and change.memory.tracks == first.memory.tracks
    second = step(kernel(GIB, stall_us=20_000, stolen=FIRST_STEP_BYTES), 1, change)
    assert asked(second)[BOX] == 2 * FIRST_STEP_BYTES


def test_a_slow_disk_gets_smaller_steps_and_no_rest() -> None:
    """A request is given up when its time is over; that is not the same as nothing to take."""
    before, stolen = step(kernel(GIB), 0), 0
    for second in range(1, 30):
        (size,) = asked(before).values()
        stolen += min(size, 3 * MIB)
        before = step(kernel(GIB, stolen=stolen), float(second), before)
        assert "memory-qos.not-reclaimable" not in {note.rule for note in before.notes}
    assert 3 * MIB <= asked(before)[BOX] <= 24 * MIB


def test_what_cannot_be_reclaimed_is_left_alone_longer_and_longer() -> None:
    before, tries, notes = None, [], set()
    for second in range(200):
        before = step(kernel(GIB), float(second), before)
        notes |= {note.rule for note in before.notes}
        if before.reclaims:
            tries.append(second)
    gaps = [after - earlier for earlier, after in pairwise(tries)]
    assert gaps == sorted(gaps) and gaps[0] <= 2 and gaps[-1] == 1 + LONGEST_WAIT_S
    assert "memory-qos.not-reclaimable" in notes
    gives = step(kernel(GIB - 16 * MIB), 300.0, before)
    assert gives.reclaims


def test_no_more_than_a_few_at_once_and_the_others_later() -> None:
    pods = [sized(str(n), "BE", "BestEffort", (0, GIB), batch=True) for n in range(9)]
    boxes = [pod.containers[0].cgroup for pod in pods]
    known = Kernel()
    for box in boxes:
        known.values |= kernel(GIB, cgroup=box).values
    before, seen = None, []
    for second in range(3):
        before = step(known, float(second), before, pods=pods)
        assert len(before.reclaims) <= AT_ONCE
        for each in before.reclaims:
            seen.append(each.cgroup)
            known.values |= kernel(GIB // 2, cgroup=each.cgroup).values
    assert sorted(seen) == sorted(boxes)


def test_a_kernel_with_watermarks_does_it_itself_and_an_old_one_cannot() -> None:
    pods = [sized("b", "BE", "BestEffort", (0, GIB), batch=True)]
    for features in (VENDOR, ("memory.min",)):
        snap = taken(machine(features), pods=pods, spec=SPEC, in_force=kernel(GIB))
        assert asked(decide(snap)) == {}


def test_best_effort_gives_way_when_the_node_is_short() -> None:
    total = NODE.memory_bytes
    target = free_target_bytes(total, 50)
    assert target == total * 3 // 100
    known = kernel(4 * GIB, cgroup=POD)
    pods = [sized("b", "BE", "BestEffort", (0, 0), batch=True)]
    short = step(known, 0, pods=pods, metrics_=free(target - 8 * MIB, total))
    assert asked(short) == {POD: 8 * MIB}
    assert short.reclaims[0].why.rule == "memory-qos.node-short"
    assert asked(step(known, 0, pods=pods, metrics_=free(target, total))) == {}
    stale = free(0, total)
    stale.age_s = 60.0
    assert asked(step(known, 0, pods=pods, metrics_=stale)) == {}


def test_latency_sensitive_work_never_gives_way_to_the_node() -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 8 * GIB))
    known = kernel(4 * GIB, cgroup=pod.cgroup)
    found = step(known, 0, pods=[pod], spec=slo(ls=on()), metrics_=free(0, NODE.memory_bytes))
    assert asked(found) == {}


def test_a_floor_is_not_reclaimed_from() -> None:
    pod = sized("b", "BE", "BestEffort", (4 * GIB, 4 * GIB), batch=True)
    known = kernel(4 * GIB, cgroup=POD)
    spec = slo(be=on(low_limit_percent=100))
    found = step(known, 0, pods=[pod], spec=spec, metrics_=free(0, NODE.memory_bytes))
    assert asked(found) == {}


def test_the_largest_user_first_and_never_more_than_is_missing() -> None:
    pods = [sized(uid, "BE", "BestEffort", (0, 0), batch=True) for uid in ("a", "b")]
    known = kernel(GIB, cgroup="kubepods/besteffort/poda")
    known.values |= kernel(2 * GIB, cgroup=POD).values
    total = NODE.memory_bytes
    metrics = free(free_target_bytes(total, 50) - 20 * MIB, total)
    found = step(known, 0, pods=pods, metrics_=metrics)
    assert asked(found) == {POD: FIRST_STEP_BYTES, "kubepods/besteffort/poda": 4 * MIB}


@given(
    used=st.lists(st.integers(0, 2 * GIB), min_size=2, max_size=12),
    stalls=st.lists(st.integers(0, 900_000), min_size=12, max_size=12),
    refaults=st.lists(st.integers(0, 100_000), min_size=12, max_size=12),
    floor=st.integers(0, 100),
)
def test_steps_are_bounded_and_never_below_the_floor(
    used: list[int], stalls: list[int], refaults: list[int], floor: int
) -> None:
    pods = [sized("b", "BE", "BestEffort", (GIB, GIB), batch=True)]
    spec = slo(be=on(low_limit_percent=floor))
    before = None
    for second, usage in enumerate(used):
        known = kernel(usage, sum(stalls[:second]), sum(refaults[:second]))
        before = step(known, float(second), before, pods=pods, spec=spec)
        for each in before.reclaims:
            assert 0 < each.size_bytes <= MOST_STEP_BYTES
            assert usage - each.size_bytes >= GIB * floor // 100
        for track in before.memory.tracks.values():
            assert LEAST_STEP_BYTES <= track.step_bytes <= MOST_STEP_BYTES


def _watched(share: float, used: int, seconds: int, wanted: int = 100 * MIB) -> list[int]:
    """Limits of each second, with that much waiting for memory."""
    before, limits = None, []
    for second in range(seconds):
        known = kernel(used, int(second * share * 1e6))
        found = watch(known, BOX, wanted, float(second), before, 4096)
        before = found.watched
        limits.append(found.limit_bytes)
    return limits


def test_who_makes_no_progress_at_the_limit_gets_room_step_by_step() -> None:
    limits = _watched(0.9, 100 * MIB, 20)
    assert limits[: int(STUCK_S)] == [100 * MIB] * int(STUCK_S)
    assert limits[-1] > 100 * MIB and sorted(limits) == limits
    # Once there is room above what it uses it is not stuck any more.
    assert limits[-1] == limits[int(STUCK_S) + 1] == 110 * MIB


def test_who_is_far_above_a_new_limit_gets_room_at_once() -> None:
    """Step by step it would wait for minutes."""
    limits = _watched(0.9, 900 * MIB, 20)
    assert limits[: int(STUCK_S)] == [100 * MIB] * int(STUCK_S)
    assert limits[int(STUCK_S) + 1] == limits[-1] == 990 * MIB


@pytest.mark.parametrize(
    ("held", "ours", "used", "limit"),
    [
        (150 * MIB, True, 140 * MIB, 150 * MIB),
        (UNLIMITED, True, 900 * MIB, 990 * MIB),  # taken away, at the hard limit
        (150 * MIB, True, 50 * MIB, 100 * MIB),  # it would not be stuck
        (90 * MIB, True, 140 * MIB, 100 * MIB),  # it was to have less
        (150 * MIB, False, 140 * MIB, 100 * MIB),  # somebody else's
    ],
)
def test_a_restart_takes_no_room_away(held: int, ours: bool, used: int, limit: int) -> None:
    known = kernel(used)
    known.values[BOX, R.MEMORY_HIGH] = held
    if ours:
        known.originals[BOX, R.MEMORY_HIGH] = UNLIMITED
    found = watch(known, BOX, 100 * MIB, 1.0, None, 4096)
    assert found.limit_bytes == limit
    later = watch(known, BOX, 100 * MIB, 2.0, found.watched, 4096)
    assert later.limit_bytes == limit


def test_pressure_below_the_limit_or_use_without_pressure_moves_nothing() -> None:
    assert set(_watched(0.9, 50 * MIB, 20)) == {100 * MIB}
    assert set(_watched(0.1, 100 * MIB, 20)) == {100 * MIB}


def test_room_is_taken_back_when_it_is_calm() -> None:
    before, now = None, 0.0
    for now in range(10):
        found = watch(kernel(100 * MIB, int(now * 9e5)), BOX, 100 * MIB, float(now), before, 4096)
        before = found.watched
    assert found.limit_bytes == 110 * MIB
    for second in range(int(CALM_S) + 3):
        known = kernel(90 * MIB, int(9 * 9e5))
        found = watch(known, BOX, 100 * MIB, now + 1.0 + second, before, 4096)
        before = found.watched
    assert found.limit_bytes == 100 * MIB


def test_the_move_is_told_and_reaches_no_limit_at_the_hard_one() -> None:
    pod = sized("b", "BE", "BestEffort", (0, 100 * MIB), batch=True)
    spec = slo(be=on(throttling_percent=95))
    before, notes = None, []
    for second in range(60):
        known = kernel(100 * MIB, int(second * 9e5))
        before = step(known, float(second), before, pods=[pod], spec=spec)
        notes += [n.text for n in before.notes if n.rule == "memory-qos.high-moved"]
    (setting,) = [s for s in before.plan.settings if s.resource is R.MEMORY_HIGH]
    assert setting.value == UNLIMITED
    assert notes and "waited for memory 90%" in notes[0]


@given(
    history=st.lists(st.tuples(st.integers(0, 300 * MIB), st.integers(0, 1_000_000)), max_size=40),
    wanted=st.integers(MIB, 200 * MIB),
)
def test_the_watch_never_goes_below_what_is_asked_for(
    history: list[tuple[int, int]], wanted: int
) -> None:
    before, stall = None, 0
    for second, (used, more) in enumerate(history):
        stall += more
        found = watch(kernel(used, stall), BOX, wanted, float(second), before, 4096)
        assert found.limit_bytes >= wanted
        assert (found.limit_bytes - wanted) == found.watched.raised_bytes
        before = found.watched
