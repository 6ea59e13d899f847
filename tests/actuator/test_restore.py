from __future__ import annotations

import errno
from pathlib import Path

import pytest

from koordlet.actuator.journal import journal as journals
from koordlet.actuator.journal.journal import JournalBusyError, load
from koordlet.actuator.restore import Status, restore
from koordlet.decision.plan import Result
from koordlet.decision.resource import UNLIMITED, Resource
from tests.actuator.journal.test_journal import FullDisk
from tests.actuator.world import BOOT, World, fake

QUOTA, SHARES, CPUS = Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.CPUSET_CPUS
WANTS = (("be", QUOTA, 50_000), ("be/pod", QUOTA, 20_000), ("be", SHARES, 2))


def statuses(world: World, **how: bool) -> list[Status]:
    return sorted(item.status for item in world.restore(**how).items)


def test_everything_goes_back_and_a_second_time_finds_nothing(world: World) -> None:
    before = {w[:2]: world.cgroups.read_raw(*w[:2]) for w in WANTS}
    world.want("be", *WANTS)
    assert statuses(world) == [Status.RESTORED] * 3
    assert {key: world.cgroups.read_raw(*key) for key in before} == before
    assert statuses(world) == []


def test_a_dry_run_changes_nothing_and_works_beside_a_daemon(world: World) -> None:
    world.want("be", *WANTS)
    written = len(world.host.written)
    report = restore(world.knobs, world.journal_path, boot_id=BOOT, now=0, time=0, dry_run=True)
    assert [item.status for item in report.items] == [Status.WOULD_RESTORE] * 3
    item = next(item for item in report.items if item.resource is SHARES)
    assert world.cgroups.equal(SHARES, 2, item.found) and item.path == world.path("be", SHARES)
    assert len(world.host.written) == written
    with pytest.raises(JournalBusyError):
        restore(world.knobs, world.journal_path, boot_id=BOOT, now=0, time=0)


def test_a_value_that_is_back_already_is_said_to_be(world: World) -> None:
    world.want("be", *WANTS)
    world.cgroups.write("be/pod", QUOTA, UNLIMITED)
    assert statuses(world) == [Status.ALREADY, Status.RESTORED, Status.RESTORED]


def test_what_somebody_else_wrote_is_left_unless_forced(world: World) -> None:
    world.want("be", *WANTS)
    world.cgroups.write("be/pod", QUOTA, 30_000)
    dry = world.restore(dry_run=True)
    (foreign,) = [item for item in dry.items if item.status is Status.FOREIGN]
    assert "30000" in foreign.text
    assert statuses(world, dry_run=True, force=True) == [Status.WOULD_RESTORE] * 3
    assert statuses(world) == [Status.FOREIGN, Status.RESTORED, Status.RESTORED]
    assert world.value("be/pod", QUOTA) == 30_000


def test_force_restores_over_foreign_values(world: World) -> None:
    world.want("be", *WANTS)
    world.cgroups.write("be/pod", QUOTA, 30_000)
    assert statuses(world, force=True) == [Status.RESTORED] * 3
    assert world.value("be/pod", QUOTA) == UNLIMITED


def test_a_refused_value_is_reported_and_can_be_restored_later(world: World) -> None:
    world.want("be", *WANTS)
    world.host.faults.add(world.path("be", QUOTA), op="write", errno=errno.EBUSY)
    report = world.restore()
    (failed,) = [item for item in report.items if item.status is Status.FAILED]
    assert "EBUSY" in failed.text and not report.ok
    assert statuses(world) == [Status.RESTORED]


def test_another_boot_has_nothing_to_restore(world: World) -> None:
    world.want("be", *WANTS)
    world.close()
    report = restore(world.knobs, world.journal_path, boot_id="later", now=0, time=0)
    assert report.other_boot and not report.items and world.value("be", QUOTA) == 50_000


def test_damage_is_reported(world: World) -> None:
    world.want("be", *WANTS)
    with open(world.journal_path, "ab") as file:
        file.write(b"garbage\n")
    report = world.restore()
    assert report.damaged_lines == 1 and not report.ok and len(report.items) == 3


def test_a_cgroup_that_is_gone_is_said_to_be(world: World) -> None:
    world.want("be", ("be/pod/box", QUOTA, 50_000))
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    assert statuses(world) == [Status.GONE]
    assert not load(world.journal_path, BOOT).entries


def test_disk_full_means_no_new_write_and_existing_ones_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.want("be", ("be", QUOTA, 50_000))
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(world.journal_path, 0))
        results = world.want("be", ("be", QUOTA, 40_000), ("be/pod", QUOTA, 20_000))
        assert sorted(results) == [Result.REFUSED, Result.WRITTEN]
        (refused,) = [o for o in world.heard if o.result is Result.REFUSED]
        assert "journal" in refused.text and "ENOSPC" in refused.text
        assert world.value("be/pod", QUOTA) == UNLIMITED
        world.want("be", ("be", QUOTA, 30_000), ("be/pod", QUOTA, 20_000))
        assert not [o for o in world.heard if o.result is Result.REFUSED]
    # Killed now: the journal does not know 30000, but knows that it does not know.
    assert statuses(world) == [Status.RESTORED] and world.value("be", QUOTA) == UNLIMITED


def test_a_read_only_disk_stops_every_write_but_the_originals(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.want("be", ("be", QUOTA, 50_000))
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(world.journal_path, 0, in_place=False))
        assert world.want("be", ("be", QUOTA, 40_000)) == [Result.REFUSED]
        assert world.value("be", QUOTA) == 50_000
        assert world.want("be") == [Result.RESTORED]
    assert world.value("be", QUOTA) == UNLIMITED


def test_sideways_cpusets_restore_from_the_union(world: World) -> None:
    """A kill between the union and the final value leaves the union in the parent."""
    before = {c: world.cgroups.read_raw(c, CPUS) for c in ("be", "be/pod", "be/pod/box")}
    world.want("be", ("be", CPUS, "0"), ("be/pod", CPUS, "0"), ("be/pod/box", CPUS, "0"))
    path = world.path("be/pod/box", CPUS)

    class KilledError(BaseException):
        pass

    def kill() -> None:
        raise KilledError

    world.host.faults.before(path, kill, op="write", after=1)
    with pytest.raises(KilledError):
        world.want("be", ("be", CPUS, "1"), ("be/pod", CPUS, "1"), ("be/pod/box", CPUS, "1"))
    assert world.value("be", CPUS) == "0-1"
    assert Status.FOREIGN not in statuses(world)
    assert {c: world.cgroups.read_raw(c, CPUS) for c in before} == before


@pytest.mark.parametrize("release", ["6.18.0-fake", "7.2.0-fake"])
def test_an_empty_cpu_list_under_tasks_goes_back_in_effect(tmp_path: Path, release: str) -> None:
    """cgroup v2 refuses the empty list while tasks run in the group, before Linux 7.2."""
    host = fake("v2", kernel_release=release)
    host.make_cgroup("be/pod")
    host.spawn("be/pod")
    world = World(host, str(tmp_path))
    before = {c: world.value(c, Resource.CPUSET_CPUS_EFFECTIVE) for c in ("be", "be/pod")}
    assert world.value("be", CPUS) == ""
    world.want("be", ("be", CPUS, "0"), ("be/pod", CPUS, "0"))
    assert world.value("be/pod", Resource.CPUSET_CPUS_EFFECTIVE) == "0"
    report = world.restore()
    assert report.ok
    assert {item.status for item in report.items} == {Status.RESTORED}
    refused = release < "7"
    assert any("refuses an empty list" in item.text for item in report.items) == refused
    assert (world.value("be/pod", CPUS) == "") == (not refused)
    after = {c: world.value(c, Resource.CPUSET_CPUS_EFFECTIVE) for c in ("be", "be/pod")}
    assert after == before
    assert statuses(world) == []
