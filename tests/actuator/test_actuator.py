"""One actuator on a fake kernel: write, keep, release, restart, observe."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs.topology import shape

from koordlet.actuator.actuator import GRACE_S, Actuator
from koordlet.actuator.journal.journal import Contents, load
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.protocol.cpuset import format_cpulist, parse_cpulist
from tests.actuator.world import BOOT, WHY, World, fake, plan, setting, unplug

QUOTA, BURST, SHARES = Resource.CPU_QUOTA_US, Resource.CPU_BURST_US, Resource.CPU_SHARES
IDLE, CPUS, LIMIT = Resource.CPU_IDLE, Resource.CPUSET_CPUS, Resource.MEMORY_LIMIT
W, F = Result.WRITTEN, Result.IN_FORCE


def test_it_writes_once_and_then_finds_it_in_force(world: World) -> None:
    assert world.want("be", ("be", QUOTA, 50_000)) == [W]
    (event,) = world.heard
    assert (event.found, event.written, event.wanted) == (UNLIMITED, 50_000, 50_000)
    assert event.why == WHY and event.path == world.path("be", QUOTA)
    written = len(world.host.written)
    for _ in range(3):
        assert world.want("be", ("be", QUOTA, 50_000)) == [F]
        assert not world.heard
    assert len(world.host.written) == written


def test_the_kernel_decides_whether_there_is_something_to_write(world: World) -> None:
    world.cgroups.write("be", QUOTA, 50_000)
    written = len(world.host.written)
    assert world.want("be", ("be", QUOTA, 50_000)) == [F]
    assert len(world.host.written) == written and not world.actuator.owned()
    assert world.want("be") == []
    assert world.value("be", QUOTA) == 50_000


def test_a_value_that_the_kernel_rounds_is_not_written_again(world: World) -> None:
    assert world.want("be", ("be", LIMIT, (64 << 20) + 5)) == [W]
    assert world.want("be", ("be", LIMIT, (64 << 20) + 5)) == [F]
    assert world.restore().ok and world.value("be", LIMIT) == UNLIMITED


def test_what_an_owner_no_longer_lists_goes_back(world: World) -> None:
    world.cgroups.write("be", SHARES, 77)
    found = world.cgroups.read_raw("be", SHARES)
    world.want("be", ("be", SHARES, 2), ("be", QUOTA, 50_000))
    assert world.want("be", ("be", QUOTA, 50_000)) == [F, Result.RESTORED]
    assert world.cgroups.read_raw("be", SHARES) == found
    assert [owned.resource for owned in world.actuator.owned()] == [QUOTA]
    assert world.want("be", ("be", QUOTA, 50_000)) == [F]


def test_owners_not_given_keep_their_plans(world: World) -> None:
    world.want("a", ("be", QUOTA, 50_000))
    outcomes = world.apply(plan("b", ("be/pod", QUOTA, 20_000)))
    assert {o.owner: o.result for o in outcomes} == {"a": F, "b": W}


def test_the_loser_is_told_and_its_value_comes_when_the_winner_leaves(world: World) -> None:
    world.apply(plan("a", ("be", QUOTA, 50_000)), plan("b", ("be", QUOTA, 30_000)))
    assert world.value("be", QUOTA) == 30_000
    (lost,) = [o for o in world.heard if o.result is Result.OUTVOTED]
    assert lost.owner == "a" and "got 30000" in lost.text
    world.apply()
    assert not world.heard
    world.apply(Plan("b"))
    assert world.value("be", QUOTA) == 50_000
    world.apply(Plan("a"))
    assert world.value("be", QUOTA) == UNLIMITED


def test_ranks_decide_where_no_value_is_safer(world: World) -> None:
    world.start(ranks=("hook", "strategy"))
    world.apply(plan("strategy", ("be", SHARES, 2)), plan("hook", ("be", SHARES, 512)))
    assert world.value("be", SHARES) == 512 or world.cgroups.layout.kind == "v2"
    assert {o.owner: o.result for o in world.heard} == {
        "hook": W,
        "strategy": Result.OUTVOTED,
    }


@pytest.mark.parametrize("everything", [True, False])
def test_kept_settings_are_neither_written_nor_restored(world: World, everything: bool) -> None:
    world.want("be", ("be", QUOTA, 50_000))
    keep = Plan("be", keep_all=True) if everything else plan("be", keep=[("be", QUOTA)])
    assert world.apply(keep) == ()
    assert world.value("be", QUOTA) == 50_000
    world.cgroups.write("be", QUOTA, 70_000)
    assert world.apply(keep) == () and world.value("be", QUOTA) == 70_000
    world.cgroups.write("be", QUOTA, 50_000)
    assert world.apply(Plan("be"))[0].result is Result.RESTORED


def test_keeping_what_was_never_wanted_means_nothing(world: World) -> None:
    assert world.apply(plan("be", keep=[("be", QUOTA)])) == ()
    assert world.value("be", QUOTA) == UNLIMITED


def test_what_cannot_be_set_is_refused_and_stops_nothing_else(world: World) -> None:
    outcomes = world.apply(
        plan(
            "be",
            ("be", SHARES, -7),
            ("be", CPUS, "x"),
            ("../etc", QUOTA, 5000),
            ("be", Resource.CPU_STAT, 1),
            ("be", Resource.PROCS, 1),
            ("be", Resource.CPU_BVT_WARP_NS, -1),
            ("gone", QUOTA, 5000),
            ("be", QUOTA, 50_000),
        )
    )
    results = {(o.cgroup, o.resource): o.result for o in outcomes}
    assert results == {
        ("be", SHARES): Result.REFUSED,
        ("be", CPUS): Result.REFUSED,
        ("../etc", QUOTA): Result.REFUSED,
        ("be", Resource.CPU_STAT): Result.REFUSED,
        ("be", Resource.PROCS): Result.REFUSED,
        ("be", Resource.CPU_BVT_WARP_NS): Result.UNSUPPORTED,
        ("gone", QUOTA): Result.GONE,
        ("be", QUOTA): Result.WRITTEN,
    }
    assert len(world.heard) == len(results)
    world.apply()
    assert not world.heard  # nothing of it is news any more


def test_a_refusal_of_the_kernel_is_typed_told_once_and_retried_with_back_off(world: World) -> None:
    path = world.path("be", QUOTA)
    fault = world.host.faults.add(path, op="write", errno=errno.EBUSY, times=3)
    both = (("be", QUOTA, 50_000), ("be", SHARES, 2))
    assert sorted(world.want("be", *both)) == [Result.REFUSED, W]
    (refused,) = [o for o in world.heard if o.result is Result.REFUSED]
    assert "EBUSY" in refused.text and path in refused.text
    assert not [o for o in world.actuator.owned() if o.resource is QUOTA]
    tries = []
    for second in range(1, 40):
        if W in world.want("be", *both):
            break
        if fault.hits > len(tries) + 1:
            tries.append(second)
        assert not world.heard
    assert tries == [2, 6] and second == 14  # waits of 2, 4 and 8 s
    assert [o.result for o in world.heard] == [W]


def test_another_value_is_tried_at_once(world: World) -> None:
    world.host.faults.add(world.path("be", QUOTA), op="write", errno=errno.EINVAL)
    assert world.want("be", ("be", QUOTA, 50_000)) == [Result.REFUSED]
    assert world.want("be", ("be", QUOTA, 50_000), after_s=0.1) == [Result.REFUSED]
    assert world.want("be", ("be", QUOTA, 60_000), after_s=0.1) == [W]


def test_a_relative_that_moves_lets_a_refused_one_try_again(tmp_path: Path) -> None:
    world = World(fake("v1"), str(tmp_path))  # v2 takes a quota above the parent's
    world.host.make_cgroup("be/pod")
    world.apply(plan("a", ("be", QUOTA, 20_000)))
    assert world.want("b", ("be/pod", QUOTA, 50_000)) == [Result.REFUSED]
    world.apply(Plan("a"), after_s=0.1)
    world.apply(after_s=0.1)
    assert world.value("be/pod", QUOTA) == 50_000
    world.close()


def test_idle_takes_the_shares_along_and_gives_them_back(world: World) -> None:
    world.cgroups.write("be", SHARES, 512)
    before = world.cgroups.read_raw("be", SHARES)
    assert world.want("hook", ("be", IDLE, 1)) == [W]
    assert {owned.resource for owned in world.actuator.owned()} == {IDLE, SHARES}
    assert world.want("hook", ("be", IDLE, 1)) == [F]
    assert world.want("hook") == [Result.RESTORED] * 2
    assert world.cgroups.read_raw("be", SHARES) == before
    assert not world.actuator.owned()


def test_shares_under_idle_wait_for_it(world: World) -> None:
    world.want("be", ("be", SHARES, 2048))
    outcomes = world.apply(plan("hook", ("be", IDLE, 1)))
    locked = next(o for o in outcomes if o.owner == "be")
    assert locked.result is Result.OUTVOTED and "cpu.idle=1" in locked.text
    world.apply()
    assert not world.heard
    world.apply(Plan("hook"))
    assert world.cgroups.equal(SHARES, 2048, world.value("be", SHARES))
    world.apply(Plan("be"))
    assert world.value("be", IDLE) == 0 and not world.actuator.owned()


def test_a_group_that_was_idle_before_is_idle_again(world: World) -> None:
    world.cgroups.write("be", IDLE, 1)
    before = world.cgroups.read_raw("be", SHARES)
    world.apply(plan("a", ("be", IDLE, 0)))
    world.apply(plan("b", ("be", SHARES, 300)))
    assert world.cgroups.equal(SHARES, 300, world.value("be", SHARES))
    assert world.restore().ok
    assert world.value("be", IDLE) == 1 and world.cgroups.read_raw("be", SHARES) == before
    assert not load(world.journal_path, BOOT).entries


def test_a_group_made_anew_under_a_lock_has_its_own_shares(world: World) -> None:
    world.want("hook", ("be/pod/box", IDLE, 1))
    world.host.remove_cgroup("be/pod/box")
    world.host.make_cgroup("be/pod/box")
    world.cgroups.write("be/pod/box", SHARES, 77)
    fresh = world.cgroups.read_raw("be/pod/box", SHARES)
    for _ in range(2):
        world.want("hook", ("be/pod/box", IDLE, 1))
    assert world.value("be/pod/box", IDLE) == 1
    assert world.restore().ok
    assert world.cgroups.read_raw("be/pod/box", SHARES) == fresh


def test_a_vanished_cgroup_is_forgotten(world: World) -> None:
    world.want("be", ("be/pod/box", QUOTA, 50_000))
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    assert world.want("be", ("be/pod/box", QUOTA, 50_000)) == [Result.GONE]
    assert not world.actuator.owned()
    assert world.want("be") == []


def test_a_cgroup_made_anew_has_its_own_original(world: World) -> None:
    world.want("be", ("be/pod/box", SHARES, 2))
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    world.host.make_cgroup("be/pod/box")
    world.cgroups.write("be/pod/box", SHARES, 4096)
    fresh = world.cgroups.read_raw("be/pod/box", SHARES)
    assert world.want("be", ("be/pod/box", SHARES, 2)) == [W]
    assert not world.actuator.conflicts()
    assert world.want("be") == [Result.RESTORED]
    assert world.cgroups.read_raw("be/pod/box", SHARES) == fresh


def test_the_journal_of_a_group_made_anew_is_not_applied_to_it(world: World) -> None:
    world.cgroups.write("be/pod/box", SHARES, 77)
    world.want("be", ("be/pod/box", SHARES, 2))
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    world.host.make_cgroup("be/pod/box")
    world.cgroups.write("be/pod/box", SHARES, 2)
    before = world.cgroups.read_raw("be/pod/box", SHARES)
    assert [item.status for item in world.restore().items] == ["gone"]
    assert world.cgroups.read_raw("be/pod/box", SHARES) == before


TREE = ("be", "be/pod", "be/pod/box")


def test_a_cpu_that_is_unplugged_is_no_second_writer_and_not_put_back(tmp_path: Path) -> None:
    world = World(fake("hybrid", topology=shape(cores_per_l3=4)), str(tmp_path))
    world.host.make_cgroup(TREE[-1])
    wide = world.value("be", CPUS)
    world.apply(plan("be", *((each, CPUS, "1-2") for each in TREE)))
    unplug(world, 2)
    results = world.want("be", *((each, CPUS, "0-1") for each in TREE))
    assert results == [W] * 3 and not world.actuator.conflicts()
    report = world.restore()
    assert report.ok
    left = format_cpulist(parse_cpulist(wide) - {2})
    assert [world.value(each, CPUS) for each in TREE] == [left] * 3
    assert not load(world.journal_path, BOOT).entries


def test_an_original_waits_for_a_parent_that_is_still_ours(world: World) -> None:
    wide = world.value("be", CPUS)
    world.apply(plan("be", *((each, CPUS, "0") for each in TREE)))
    world.apply(plan("be", *((each, CPUS, "0") for each in TREE[:2])))
    world.apply(Plan("be"))
    world.apply(after_s=100)
    assert [world.value(each, CPUS) for each in TREE] == [wide] * 3
    assert not world.actuator.owned()


def test_after_a_restart_values_stay_until_their_owner_speaks(world: World) -> None:
    world.want("be", ("be", QUOTA, 50_000), ("be", SHARES, 2))
    world.start()
    written = len(world.host.written)
    assert world.apply() == () and world.apply(Plan("be", keep_all=True)) == ()
    assert world.want("be", ("be", QUOTA, 50_000)) == [F, Result.RESTORED]
    assert len(world.host.written) == written + 1
    assert world.want("be") == [Result.RESTORED]


def test_values_of_owners_that_never_speak_go_back_after_the_grace(world: World) -> None:
    world.want("old", ("be", QUOTA, 50_000))
    world.start()
    world.apply(Plan("other"))
    assert world.apply(after_s=GRACE_S - 1) == ()
    assert world.apply(after_s=1)[0].result is Result.RESTORED
    assert world.value("be", QUOTA) == UNLIMITED


def test_observe_mode_writes_nothing_and_shows_everything(world: World) -> None:
    world.start(observe=True)
    written, files = len(world.host.written), sorted(Path(world.journal_path).parent.iterdir())
    wants = (("be", QUOTA, 50_000), ("be", IDLE, 1))
    assert world.want("be", *wants) == [Result.WOULD_WRITE] * 2
    assert {(o.found, o.wanted, o.written) for o in world.heard} == {
        (UNLIMITED, 50_000, None),
        (0, 1, None),
    }
    assert world.want("be", *wants) == [Result.WOULD_WRITE] * 2 and not world.heard
    assert world.want("be") == [] and not world.actuator.owned()
    assert len(world.host.written) == written
    assert sorted(Path(world.journal_path).parent.iterdir()) == files


def test_observe_mode_on_a_journal_shows_what_would_go_back(world: World) -> None:
    world.want("be", ("be", QUOTA, 50_000))
    world.start(observe=True)
    before, written = Path(world.journal_path).read_bytes(), len(world.host.written)
    for _ in range(2):
        assert world.want("be") == [Result.WOULD_RESTORE]
    assert len(world.actuator.owned()) == 1
    assert Path(world.journal_path).read_bytes() == before and len(world.host.written) == written


def test_observe_mode_with_an_open_journal_leaves_it_alone(world: World) -> None:
    world.want("be", ("be/pod/box", SHARES, 2))
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    world.host.make_cgroup("be/pod/box")
    before = Path(world.journal_path).read_bytes()
    watcher = Actuator(world.knobs, world.journal, observe=True)
    for wants in ([("be/pod/box", SHARES, 5)], []):
        watcher.apply([plan("be", *wants)], now=1.0, time=1.0)
    assert Path(world.journal_path).read_bytes() == before


def test_contents_alone_serve_observe_mode_only(world: World) -> None:
    with pytest.raises(TypeError, match="observe"):
        Actuator(world.knobs, Contents({}))


def test_restore_all_ignores_waits_and_leaves_nothing(world: World) -> None:
    world.want("be", ("be", QUOTA, 50_000), ("be/pod", QUOTA, 20_000))
    world.host.faults.add(world.path("be", QUOTA), op="write", errno=errno.EBUSY)
    assert Result.REFUSED in world.want("be")
    outcomes = world.actuator.restore_all(now=world.now, time=world.now)
    assert [o.result for o in outcomes] == [Result.RESTORED]
    assert not world.actuator.owned() and world.value("be", QUOTA) == UNLIMITED


def test_durations_are_counted_by_status(world: World) -> None:
    world.host.faults.add(world.path("be", SHARES), op="write", errno=errno.EINVAL)
    world.want("be", ("be", QUOTA, 50_000), ("be", SHARES, 2))
    counts = world.actuator.histogram.counts
    assert sum(counts["cgroup", "success"]) == 1 and sum(counts["cgroup", "failed"]) == 1


def test_a_read_error_is_an_outcome_not_a_crash(world: World) -> None:
    world.host.faults.add(world.path("be", QUOTA), op="read", errno=errno.EIO, times=1)
    assert world.want("be", ("be", QUOTA, 50_000)) == [Result.REFUSED]
    assert world.want("be", ("be", QUOTA, 50_000)) == [W]
    world.host.faults.short_read(world.path("be", SHARES), 0)
    assert Result.REFUSED in world.want("be", ("be", QUOTA, 50_000), ("be", SHARES, 2))


def test_names_that_are_no_utf8_are_written_and_put_back(world: World) -> None:
    world.host.make_cgroup("be\udcff")
    outcomes = world.apply(Plan("be", (setting("be\udcff", QUOTA, 5000),)))
    assert [o.result for o in outcomes] == [W]
    assert world.restore().ok and world.value("be\udcff", QUOTA) == UNLIMITED
    world.start()
    outcomes = world.apply(Plan("be", (setting("be\ud800", QUOTA, 5000),)))
    assert [o.result for o in outcomes] == [Result.REFUSED]  # no bytes are called so


def test_nothing_is_kept_of_a_cgroup_that_is_gone(world: World) -> None:
    world.want("be", ("be", SHARES, 2))
    world.host.remove_cgroup("be")
    assert [each.result for each in world.apply(Plan("be"))] == [Result.GONE]
    assert "be" not in repr(vars(world.actuator)["_told"])
    assert not world.journal.entries


def test_a_weight_on_a_disk_without_cost_model_is_unsupported_not_refused(tmp_path: Path) -> None:
    world = World(fake("v2"), str(tmp_path))
    world.host.make_cgroup("be")
    disk = ":".join(map(str, world.host.machine.options.disks[0][:2]))
    outcomes = world.apply(plan("a", ("be", Resource.BLKIO_COST_WEIGHT, f"{disk} 10")))
    assert [each.result for each in outcomes] == [Result.UNSUPPORTED]
    assert "not supported" in outcomes[0].text
    assert not world.journal.entries
