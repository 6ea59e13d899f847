"""L3 cache and memory traffic by class and by pod."""

from __future__ import annotations

import errno
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordlet_fakefs import Resctrl, shape
from koordlet_fakefs.resctrl_monitor import Counters

from koordlet.collectors.resctrl import READ_FOR_S, ResctrlCollector, Traffic
from koordlet.decision.metrics import (
    POD_RESCTRL_LLC,
    POD_RESCTRL_MB_RATE,
    RESCTRL_LLC,
    RESCTRL_MB,
    RESCTRL_MB_RATE,
)
from tests.collectors.world import UID, UID2, World

ROOT = "/sys/fs/resctrl"
LLC, MB, RATE = RESCTRL_LLC.kind, RESCTRL_MB.kind, RESCTRL_MB_RATE.kind
POD_LLC, POD_RATE = POD_RESCTRL_LLC.kind, POD_RESCTRL_MB_RATE.kind
TOTAL, LOCAL = "mbm_total_bytes", "mbm_local_bytes"
POD = f"koordlet-BE/mon_groups/koordlet-{UID}"
POD2 = f"koordlet-BE/mon_groups/koordlet-{UID2}"


def make(world: World, *groups: str) -> None:
    for group in groups:
        world.host.mkdir(f"{ROOT}/{group}")


def counters(world: World, group: str) -> Counters:
    node = world.host._directory(f"{ROOT}/{group}")
    return node.counters  # type: ignore[attr-defined,no-any-return]


def collected(world: World) -> dict[tuple[str, ...], float]:
    """What the next round of this collector says, ten seconds later."""
    world.host.advance(10)
    samples = world.samples(world.round())
    return {key: value for key, value in samples.items() if "resctrl" in key[0]}


def world_of(*groups: str, caches: int = 1, **resctrl: object) -> World:
    world = World(resctrl=Resctrl(**resctrl), topology=shape(sockets=caches))
    for qos, uid in (("burstable", UID), ("besteffort", UID2)):
        world.pod(qos, uid, f"{uid}-box")
    make(world, *groups)
    return world


def test_groups_of_classes_and_of_pods_alone() -> None:
    world = world_of("koordlet-BE", POD, "koordlet-pod", "BE", "mon_groups/koordlet-x", caches=2)
    world.host.mkdir(f"{ROOT}/BE/mon_groups/theirs")
    for group in ("koordlet-BE", POD, "BE", "mon_groups/koordlet-x"):
        counters(world, group).see(llc_occupancy=4096, mbm_total_bytes=300, mbm_local_bytes=200)
    both = ("0", "1")
    assert collected(world) == {
        **{(LLC, cache, "BE"): 8192 for cache in both},
        **{(MB, cache, "BE", TOTAL): 600 for cache in both},
        **{(MB, cache, "BE", LOCAL): 400 for cache in both},
        **{(POD_LLC, cache, UID): 4096 for cache in both},
    }
    counters(world, POD).see(0, mbm_total_bytes=1000, mbm_local_bytes=50)
    found = collected(world)
    assert found[POD_RATE, "0", UID, TOTAL] == 100 and found[POD_RATE, "1", UID, TOTAL] == 0
    assert found[POD_RATE, "0", UID, LOCAL] == 5
    assert found[RATE, "0", "BE", TOTAL] == 100 and found[MB, "0", "BE", TOTAL] == 1600


def test_a_pod_with_an_allocation_of_its_own_and_one_in_the_default_group() -> None:
    world = world_of(f"koordlet-{UID}", f"mon_groups/koordlet-{UID2}")
    counters(world, f"koordlet-{UID}").see(llc_occupancy=10)
    counters(world, f"mon_groups/koordlet-{UID2}").see(llc_occupancy=20)
    assert collected(world) == {(POD_LLC, "0", UID): 10, (POD_LLC, "0", UID2): 20}


def test_a_pod_that_is_moved_between_control_groups_has_two_for_a_moment() -> None:
    world = world_of("koordlet-BE", POD, f"mon_groups/koordlet-{UID}")
    for group, size in ((POD, 10), (f"mon_groups/koordlet-{UID}", 5)):
        counters(world, group).see(llc_occupancy=size)
    assert collected(world)[POD_LLC, "0", UID] == 15


@pytest.mark.parametrize("word", ["Unavailable", "Error", "Unassigned"])
def test_not_now_is_neither_zero_nor_a_restart(word: str) -> None:
    world = world_of(POD.partition("/")[0], POD)
    counted = counters(world, POD)
    counted.see(llc_occupancy=10, mbm_total_bytes=100)
    collected(world)
    known = counted.values[0, TOTAL]
    counted.values[0, TOTAL] = word
    assert not [key for key in collected(world) if TOTAL in key]
    counted.values[0, TOTAL] = known
    counted.see(mbm_total_bytes=400)
    found = collected(world)
    assert found[POD_RATE, "0", UID, TOTAL] == 20  # 400 bytes in the 20 s since it was last read
    assert found[MB, "0", "BE", TOTAL] == 500


def test_a_group_that_was_made_anew_starts_anew() -> None:
    world = world_of("koordlet-BE", POD)
    counters(world, POD).see(mbm_total_bytes=1000)
    collected(world)
    world.host.rmdir(f"{ROOT}/{POD}")
    world.host.mkdir(f"{ROOT}/{POD}")
    counters(world, POD).see(mbm_total_bytes=5000)
    found = collected(world)
    assert (POD_RATE, "0", UID, TOTAL) not in found
    # For its class these are 5000 bytes in 10 s: what the group before had counted is out of it.
    assert found[RATE, "0", "BE", TOTAL] == 500
    assert found[MB, "0", "BE", TOTAL] == 6000
    counters(world, POD).see(mbm_total_bytes=100)
    assert collected(world)[POD_RATE, "0", UID, TOTAL] == 10


def test_a_monitor_group_that_goes_lowers_the_sum_of_the_kernel_and_no_total() -> None:
    world = world_of("koordlet-BE", POD, POD2)
    for group, size in (("koordlet-BE", 100), (POD, 1000), (POD2, 50)):
        counters(world, group).see(mbm_total_bytes=size)
    assert collected(world)[MB, "0", "BE", TOTAL] == 1150
    world.host.rmdir(f"{ROOT}/{POD}")
    counters(world, POD2).see(mbm_total_bytes=30)
    found = collected(world)
    assert world.host.read(f"{ROOT}/koordlet-BE/mon_data/mon_L3_00/{TOTAL}") == b"180\n"
    assert found[RATE, "0", "BE", TOTAL] == 3 and found[MB, "0", "BE", TOTAL] == 1180


def test_a_total_does_not_fall_when_a_group_goes_that_was_read_before_its_class() -> None:
    """The class was read with 900 bytes more of it than the group itself had said."""
    world = world_of("koordlet-BE", POD)
    counters(world, POD).see(mbm_total_bytes=100)
    collected(world)
    collector = next(each for each in world.runner.collectors if each.name == "resctrl")
    assert isinstance(collector, ResctrlCollector)
    counters(world, POD).see(mbm_total_bytes=900)
    mark = collector._known[POD]
    found = collected(world)
    assert found[MB, "0", "BE", TOTAL] == 1000
    mark.marks[0, TOTAL] = 100, mark.marks[0, TOTAL][1]  # as when time was over after the class
    world.host.rmdir(f"{ROOT}/{POD}")
    counters(world, "koordlet-BE").see(mbm_total_bytes=50)
    found = collected(world)
    assert found[MB, "0", "BE", TOTAL] == 1000 and (RATE, "0", "BE", TOTAL) not in found
    counters(world, "koordlet-BE").see(mbm_total_bytes=70)
    found = collected(world)
    assert found[MB, "0", "BE", TOTAL] == 1070 and found[RATE, "0", "BE", TOTAL] == 7


def test_events_of_amd_that_are_set_anew_start_anew_and_are_named() -> None:
    world = world_of("koordlet-BE", configurable=True)
    counters(world, "koordlet-BE").see(mbm_total_bytes=1000)
    assert collected(world)[MB, "0", "BE", TOTAL] == 1000
    collector = next(each for each in world.runner.collectors if each.name == "resctrl")
    assert isinstance(collector, ResctrlCollector)
    assert re.fullmatch(
        r"1 of 1 groups in the last round, which took \d+\.\d ms of CPU", collector.about()
    )
    world.host.write(f"{ROOT}/info/L3_MON/{TOTAL}_config", b"0=0x33\n")
    counters(world, "koordlet-BE").see(mbm_total_bytes=20)
    assert (MB, "0", "BE", TOTAL) not in collected(world)  # "Unavailable" once
    assert collected(world)[MB, "0", "BE", TOTAL] == 1000
    counters(world, "koordlet-BE").see(mbm_total_bytes=30)
    assert collected(world)[MB, "0", "BE", TOTAL] == 1030
    assert collector.about().endswith(f"; not the usual traffic: {TOTAL} is set to 0=0x33")


def test_no_rate_is_negative_when_somebody_elses_monitor_group_goes() -> None:
    world = world_of("koordlet-BE", "koordlet-BE/mon_groups/theirs")
    counters(world, "koordlet-BE").see(mbm_total_bytes=10)
    counters(world, "koordlet-BE/mon_groups/theirs").see(mbm_total_bytes=1000)
    collected(world)
    world.host.rmdir(f"{ROOT}/koordlet-BE/mon_groups/theirs")
    found = collected(world)
    assert (RATE, "0", "BE", TOTAL) not in found and found[MB, "0", "BE", TOTAL] == 1010


def test_a_remount_is_a_new_start() -> None:
    world = world_of("koordlet-BE")
    counters(world, "koordlet-BE").see(mbm_total_bytes=1000)
    collected(world)
    assert world.host.resctrl is not None
    world.host.resctrl.remount()
    assert collected(world) == {}
    make(world, "koordlet-BE")
    counters(world, "koordlet-BE").see(mbm_total_bytes=7000)
    assert collected(world) == {(MB, "0", "BE", TOTAL): 7000}
    counters(world, "koordlet-BE").see(mbm_total_bytes=10)
    assert collected(world)[RATE, "0", "BE", TOTAL] == 1


def test_sub_numa_clusters_are_counted_by_cache() -> None:
    world = world_of("koordlet-BE", nodes_per_cache=2)
    counters(world, "koordlet-BE").see(0, llc_occupancy=3, mbm_total_bytes=100)
    counters(world, "koordlet-BE").see(1, llc_occupancy=4, mbm_total_bytes=200)
    assert collected(world) == {(LLC, "0", "BE"): 7, (MB, "0", "BE", TOTAL): 300}


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (("llc_occupancy",), {LLC}),
        (("mbm_total_bytes",), {MB}),
        (("llc_occupancy", "mbm_total_bytes"), {LLC, MB}),  # Arm's MPAM has no local one
        ((), set()),
    ],
)
def test_what_the_processor_does_not_count_is_missing_and_no_fault(
    events: tuple[str, ...], kinds: set[str]
) -> None:
    world = world_of("koordlet-BE", events=events)
    if events:
        counters(world, "koordlet-BE").see(llc_occupancy=1, mbm_total_bytes=1, mbm_local_bytes=1)
    assert {key[0] for key in collected(world)} == kinds
    assert world.health("resctrl").success and not world.health("resctrl").skipped


def test_one_group_that_cannot_be_read_is_left_out() -> None:
    world = world_of("koordlet-BE", "koordlet-LS")
    for group in ("koordlet-BE", "koordlet-LS"):
        counters(world, group).see(llc_occupancy=1)
    path = f"{ROOT}/koordlet-BE/mon_data/mon_L3_00/llc_occupancy"
    counters(world, "koordlet-BE").see(llc_occupancy=4096)
    for fail in (
        lambda: world.host.faults.short_read(path, 0),
        lambda: world.host.faults.short_read(path, 2),  # "40"
        lambda: world.host.faults.add(path, op="open", errno=errno.EIO),
    ):
        fail()
        assert collected(world) == {(LLC, "0", "LS"): 1}
        assert "koordlet-BE" in world.health("resctrl").skipped_example
    assert collected(world)[LLC, "0", "BE"] == 4096


def test_a_slow_machine_is_not_waited_for_and_everybody_has_a_turn() -> None:
    """Each file is answered by a CPU that has other things to do."""
    groups = [f"mon_groups/koordlet-{uid}" for uid in (UID, UID2)]
    world = world_of(*groups)
    for group in groups:
        counters(world, group).see(llc_occupancy=1, mbm_total_bytes=0)
    world.host.faults.before(
        "*/llc_occupancy", lambda: world.host.suspend(2 * READ_FOR_S), op="read", times=None
    )
    seen = []
    for _ in range(4):
        found = [key[-1] for key in collected(world) if key[0] == POD_LLC]
        assert len(found) == 1
        seen += found
        for group in groups:
            counters(world, group).see(mbm_total_bytes=1000)
    assert seen == [UID2, UID, UID2, UID] or seen == [UID, UID2, UID, UID2]
    # Its rate is over the time since its own last reading, two rounds.
    counters(world, groups[0]).see(mbm_total_bytes=0)
    last = collected(world)
    (rate,) = (value for key, value in last.items() if key[0] == POD_RATE and TOTAL in key)
    assert rate == pytest.approx(2000 / 20, rel=0.01)


def test_series_of_a_pod_that_went_are_given_back() -> None:
    world = world_of("koordlet-BE", POD)
    counters(world, POD).see(llc_occupancy=1)
    collected(world)
    (series,) = world.store.select(POD_LLC, {"pod_uid": UID})
    released: list[int] = []
    release = world.store.release
    world.store.release = lambda each: (released.append(each), release(each))  # type: ignore[method-assign,assignment,func-returns-value]
    world.pods = world.pods[1:]
    assert (POD_LLC, "0", UID) not in collected(world)
    assert series in released


def test_without_resctrl_there_is_nothing_and_no_fault() -> None:
    world = World()
    world.rounds()
    health = world.health("resctrl")
    assert health.success and not health.samples and not health.skipped


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20))
def test_whatever_comes_no_rate_is_negative_and_no_total_falls(
    readings: list[tuple[int, bool]],
) -> None:
    traffic, key = Traffic(1), (0, TOTAL)
    other = Traffic(2)
    other.take(0.0, {key: 2})
    for number, (value, leaves) in enumerate(readings):
        before = traffic.totals.get(key, 0)
        if leaves:
            traffic.leave_out(other)
        rates = traffic.take(float(number), {key: value})
        assert all(rate >= 0 for rate in rates.values())
        assert traffic.totals[key] >= before
