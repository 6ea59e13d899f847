"""What the actuator cannot see for a while, and cgroups with another name: no original is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from koordlet_fakefs.faults import Fault, Op

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import Contents, Intent, load
from koordlet.actuator.merge import Key
from koordlet.actuator.restore import Status
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from tests.actuator.world import BOOT, World, fake, plan

QUOTA, SHARES, OOM = Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.OOM_SCORE_ADJ
FREEZE = Resource.FREEZE
FREEZERS = ("freezer/moved/freezer.state", "unified/be/cgroup.freeze")
COOKIES = Resource.CORE_SCHED_GROUP
IDLE = Resource.CPU_IDLE
LIMIT, HIGH = Resource.MEMORY_LIMIT, Resource.MEMORY_HIGH
WANTS = (("be", QUOTA, 50_000), ("be", SHARES, 50), ("be", LIMIT, 64 << 20))
ROOTS = {"v1": "/sys/fs/cgroup/*/*", "hybrid": "/sys/fs/cgroup/*/*", "v2": "/sys/fs/cgroup/*"}


@pytest.fixture(params=["v1", "hybrid", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(fake(request.param), str(tmp_path))
    made.host.make_cgroup("be/pod")
    made.cgroups.write("be", SHARES, 300)
    made.want("a", *WANTS)
    yield made
    made.close()


def hide(world: World, glob: str = "") -> Fault:
    return world.host.faults.hide(glob or ROOTS[world.cgroups.layout.kind])


def left(world: World) -> object:
    """What the journal on the disk has."""
    return load(world.journal_path, BOOT).entries


def is_as_before(world: World) -> bool:
    values = [world.value("be", each) for each in (QUOTA, LIMIT)]
    shares = world.cgroups.equal(SHARES, 300, world.value("be", SHARES))
    return values == [UNLIMITED] * 2 and shares


@pytest.mark.parametrize("still_wanted", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_hierarchy_that_was_away_for_a_while(
    world: World, still_wanted: bool, restarted: bool
) -> None:
    hide(world)
    if restarted:
        world.start()
    for _ in range(3):
        results = world.want("a", *(WANTS if still_wanted else ()))
        assert set(results) == {Result.REFUSED}
    assert len(world.journal.entries) == 3
    world.host.faults.clear()
    if still_wanted:
        assert world.want("a", *WANTS, after_s=5) == [Result.IN_FORCE] * 3
        assert world.restore().ok
    else:
        assert world.want("a", after_s=5) == [Result.RESTORED] * 3
    assert is_as_before(world) and not left(world)


def test_a_restore_meanwhile_says_so_and_one_afterwards_works(world: World) -> None:
    hide(world)
    report = world.restore()
    assert not report.ok and {item.status for item in report.items} == {Status.FAILED}
    world.host.faults.clear()
    assert world.restore().ok and is_as_before(world)


def test_a_controller_that_was_mounted_nowhere_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its v1 hierarchy is mounted late: the cgroups in it have kept their values."""
    if "cpu" not in world.cgroups.layout.v1:
        pytest.skip("on v2 a controller that is off has forgotten them")
    with monkeypatch.context() as patch:
        patch.delitem(world.cgroups._places, QUOTA)
        patch.setitem(world.cgroups._places, QUOTA, ())
        assert not world.restore().ok
    assert world.restore().ok and is_as_before(world)


@pytest.mark.parametrize("op", ["open", "read"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ENOENT, errno.ENODEV])
@pytest.mark.parametrize("still_wanted", [True, False])
def test_a_file_that_cannot_be_read_for_a_while(
    world: World, op: Op, code: int, still_wanted: bool
) -> None:
    path = world.path("be", SHARES)
    world.host.faults.add(path, op=op, errno=code, times=None)
    wants = WANTS if still_wanted else ()
    for _ in range(3):
        world.want("a", *wants)
    assert world.journal.entries.keys() >= {("be", SHARES)}
    world.host.faults.clear()
    world.want("a", *wants, after_s=400)
    assert world.restore().ok and is_as_before(world)


def test_one_that_cannot_be_written_back_because_it_is_out_of_sight(world: World) -> None:
    """It goes between the look at it and the write."""
    path = world.path("be", SHARES)
    world.host.faults.before(path, lambda: [hide(world), None][1], op="write")
    world.host.faults.add(path, op="write", errno=errno.ENOENT, times=1)
    world.want("a")
    assert ("be", SHARES) in world.journal.entries
    world.host.faults.clear()
    world.want("a", after_s=5)
    assert is_as_before(world) and not left(world)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("shares_wanted", [True, False])
def test_shares_wait_while_their_lock_cannot_be_read(
    world: World, code: int, shares_wanted: bool
) -> None:
    """What they hold under it is not somebody's choice."""
    world.apply(plan("a"))
    wants = (("be", IDLE, 1), *((("be", SHARES, 900),) if shares_wanted else ()))
    world.want("a", *wants)
    world.host.faults.add(world.path("be", IDLE), op="open", errno=code, times=None)
    for _ in range(3):
        world.want("a", *wants)
    assert world.journal.entries.keys() == {("be", IDLE), ("be", SHARES)}
    world.host.faults.clear()
    world.want("a", *wants, after_s=400)
    assert not world.actuator.conflicts()
    assert world.restore().ok and is_as_before(world)


def test_on_v2_a_controller_that_is_taken_away_takes_the_values_with_it(tmp_path: Path) -> None:
    world = World(fake("v2"), str(tmp_path))
    world.host.make_cgroup("top/be")
    world.want("a", ("top/be", HIGH, 64 << 20))
    world.host.write("/sys/fs/cgroup/top/cgroup.subtree_control", b"-memory")
    assert [item.status for item in world.restore().items] == [Status.GONE]
    assert not left(world)


def test_a_cgroup_that_was_removed_is_forgotten_at_once(world: World) -> None:
    world.host.remove_cgroup("be")
    assert set(world.want("a", *WANTS)) == {Result.GONE}
    assert not left(world)


# --- Another name


@pytest.fixture(params=["v1", "hybrid"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(fake(request.param), str(tmp_path))
    made.host.make_cgroup("top/be/pod")
    made.host.make_cgroup("top/other/pod")
    yield made
    made.close()


BOTH = tuple((cgroup, SHARES, 50) for cgroup in ("top/be", "top/be/pod"))


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("made_anew", [True, False])
@pytest.mark.parametrize("still_wanted", [True, False])
def test_a_renamed_cgroup_gets_its_original_back(
    old: World, offline: bool, made_anew: bool, still_wanted: bool
) -> None:
    old.want("a", *BOTH)
    old.host.rename_cgroup("top/be", "moved")
    if made_anew:
        old.host.make_cgroup("top/be/pod")
    if offline:
        assert old.restore().ok
    else:
        for _ in range(3):
            old.want("a", *(BOTH if still_wanted else ()))
        if made_anew and still_wanted:
            assert [old.value(each, SHARES) for each in ("top/be", "top/be/pod")] == [50, 50]
            assert old.restore().ok
    groups = ["top/moved", "top/moved/pod"] + ["top/be", "top/be/pod"] * made_anew
    assert [old.value(each, SHARES) for each in groups] == [1024] * len(groups)
    assert not left(old)


def test_one_that_is_renamed_and_wanted_by_its_new_name_goes_on(old: World) -> None:
    old.want("a", *BOTH)
    old.host.rename_cgroup("top/be", "moved")
    wants = tuple((cgroup.replace("be", "moved"), SHARES, 50) for cgroup, *_ in BOTH)
    written = len(old.host.written)
    for _ in range(3):
        old.want("a", *wants)
    assert len(old.host.written) == written
    assert old.restore().ok
    assert {old.value(each, SHARES) for each in ("top/moved", "top/moved/pod")} == {1024}


def test_one_that_comes_back_under_its_name_goes_on(old: World) -> None:
    old.want("a", *BOTH)
    old.host.rename_cgroup("top/be", "moved")
    old.host.rename_cgroup("top/moved", "be")
    assert old.want("a", *BOTH) == [Result.IN_FORCE] * 2
    assert old.restore().ok and old.value("top/be", SHARES) == 1024


def test_a_renamed_one_is_found_after_a_restart(old: World) -> None:
    old.want("a", *BOTH)
    old.host.rename_cgroup("top/be", "moved")
    old.start()
    old.apply(Plan("a"))
    assert {old.value(each, SHARES) for each in ("top/moved", "top/moved/pod")} == {1024}


def test_a_file_of_another_hierarchy_is_another_file(tmp_path: Path) -> None:
    """The freezer of v1 and that of v2 are one resource; rename(2) takes the first one away."""
    world = World(fake("hybrid"), str(tmp_path))
    world.host.make_cgroup("be")
    world.want("a", ("be", FREEZE, 1))
    world.host.rename_cgroup("be", "moved")
    for _ in range(2):
        world.want("a", ("be", FREEZE, 1))
    found = [world.host.look(f"/sys/fs/cgroup/{file}").strip() for file in FREEZERS]
    assert found == ["THAWED", "1"]
    assert world.restore().ok and not left(world)
    found = [world.host.look(f"/sys/fs/cgroup/{file}").strip() for file in FREEZERS]
    assert found == ["THAWED", "0"]


def test_of_two_files_of_a_resource_the_one_with_our_value_is_used(tmp_path: Path) -> None:
    """Somebody makes the cgroup in the hierarchy that comes first, too."""
    world = World(fake("hybrid"), str(tmp_path))
    world.host.mkdir("/sys/fs/cgroup/unified/be")
    world.want("a", ("be", FREEZE, 1))
    world.host.make_cgroup("be")
    world.want("a", ("be", FREEZE, 1))
    files = ("freezer/be/freezer.state", "unified/be/cgroup.freeze")
    found = [world.host.look(f"/sys/fs/cgroup/{file}").strip() for file in files]
    assert found == ["THAWED", "1"]
    assert world.restore().ok and world.host.look(f"/sys/fs/cgroup/{files[1]}") == "0\n"


@pytest.mark.parametrize("was_paused", [False, True])
def test_while_that_one_is_out_of_sight_the_other_is_not_used(
    tmp_path: Path, was_paused: bool
) -> None:
    """Nor after somebody else has only shown what he would write (``Parts.shadow``)."""
    world = World(fake("hybrid"), str(tmp_path))
    world.host.make_cgroup("be")
    world.want("a", ("be", FREEZE, 1))
    if was_paused:
        Actuator(world.knobs, Contents({}), observe=True, audit=world.heard.append)
    world.host.faults.hide("/sys/fs/cgroup/freezer/*")
    for _ in range(2):
        world.want("a", ("be", FREEZE, 1))
    assert world.host.look("/sys/fs/cgroup/unified/be/cgroup.freeze") == "0\n"
    world.host.faults.clear()
    assert world.restore().ok
    assert world.host.look("/sys/fs/cgroup/freezer/be/freezer.state") == "THAWED\n"


def test_one_whose_hierarchy_is_not_mounted_at_a_restart_is_waited_for(tmp_path: Path) -> None:
    world = World(fake("hybrid"), str(tmp_path))
    world.host.make_cgroup("be")
    world.want("a", ("be", FREEZE, 1))
    whole = world.cgroups
    v1 = {name: root for name, root in whole.layout.v1.items() if name != "freezer"}
    world.cgroups = Cgroups(world.host, replace(whole.layout, v1=v1))
    world.start()
    assert world.want("a", ("be", FREEZE, 1)) == [Result.REFUSED]
    assert world.host.look("/sys/fs/cgroup/unified/be/cgroup.freeze") == "0\n"
    world.cgroups = whole
    world.start()
    assert world.restore().ok and not left(world)
    assert world.host.look("/sys/fs/cgroup/freezer/be/freezer.state") == "THAWED\n"


def test_processes_are_the_same_in_each_hierarchy(tmp_path: Path) -> None:
    """They were listed in another one while their cgroup had another name in this one."""
    host = fake("hybrid")
    world = World(host, str(tmp_path))
    host.make_cgroup("be")
    process = host.spawn("be")
    world.want("a", ("be", OOM, 500))
    known = world.journal.entries[Key("be", OOM)]
    elsewhere = f"{OOM} of {world.cgroups.layout.v2}/be/cgroup.procs"
    world.journal.release([Key("be", OOM)])
    moved = msgspec.structs.replace(known.original, path=elsewhere, inode=known.original.inode + 1)
    world.journal.begin([moved], [Intent("be", OOM, known.ours, "a")])
    assert world.want("a") == [Result.RESTORED]
    assert process.oom_score_adj == 0


def test_a_lock_moves_before_what_it_locks(old: World) -> None:
    """Although its owner cannot judge at present, so that nobody looks at it."""
    old.cgroups.write("top/be", SHARES, 77)
    old.want("a", ("top/be", IDLE, 1))
    old.host.rename_cgroup("top/be", "moved")
    for _ in range(3):
        old.apply(plan("a", keep=[("top/be", IDLE)]))
    old.want("a")
    assert old.restore().ok
    assert (old.value("top/moved", IDLE), old.value("top/moved", SHARES)) == (0, 77)


@pytest.mark.parametrize("works", range(4))
def test_a_disk_that_fills_up_does_not_part_a_lock_from_what_it_locks(
    old: World, monkeypatch: pytest.MonkeyPatch, works: int
) -> None:
    """``works``: so often it does, then it is full."""
    old.cgroups.write("top/be", SHARES, 77)
    old.want("a", ("top/be", IDLE, 1))
    old.host.rename_cgroup("top/be", "moved")
    fsync, left = os.fsync, works

    def filling(fd: int) -> None:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= 1
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", filling)
        old.want("a", ("top/be", IDLE, 1))
        assert len(old.journal.entries) == (0 if works else 2)
    assert old.restore().ok
    assert (old.value("top/moved", IDLE), old.value("top/moved", SHARES)) == (0, 77)


def test_scores_of_processes_move_with_their_cgroup(old: World) -> None:
    process = old.host.spawn("top/be")
    old.want("a", ("top/be", OOM, 300))
    old.host.rename_cgroup("top/be", "moved")
    old.want("a")
    old.want("a")
    assert process.oom_score_adj == 0 and not left(old)


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[World]:
    """Two cgroups in one core-scheduling group."""
    made = World(fake("v1", core_sched=True), str(tmp_path))
    for cgroup in ("top/be", "top/other"):
        made.host.make_cgroup(cgroup)
        made.host.spawn(cgroup)
    made.want("a", *GROUPED)
    yield made
    made.close()


GROUPED = tuple((cgroup, COOKIES, "group") for cgroup in ("top/be", "top/other"))


def cookies(world: World) -> set[int]:
    processes = world.host.machine.processes.values()
    return {thread.cookie for each in processes for thread in each.threads.values()}


@pytest.mark.parametrize("restarted", [True, False])
def test_cookies_move_with_their_cgroup(grouped: World, restarted: bool) -> None:
    assert len(cookies(grouped)) == 2  # that of the group, and none
    grouped.host.rename_cgroup("top/be", "moved")
    if restarted:
        assert grouped.restore().ok
    else:
        for _ in range(2):
            grouped.want("a", GROUPED[1])
    assert grouped.restore().ok and cookies(grouped) == {0} and not left(grouped)


@pytest.mark.parametrize("op", ["inode", "read", "open"])
def test_a_group_is_known_again_that_could_not_be_seen_at_the_start(grouped: World, op: Op) -> None:
    fault = grouped.host.faults.add("*/cpu/top/*", op=op, errno=errno.EIO, times=None)
    grouped.start()
    grouped.want("a", *GROUPED)
    grouped.host.faults.active.remove(fault)
    grouped.want("a", *GROUPED, after_s=5)
    assert not grouped.actuator.conflicts()
    assert grouped.restore().ok and cookies(grouped) == {0} and not left(grouped)


@pytest.mark.parametrize("made_anew", [True, False])
def test_where_the_disk_is_full_a_renamed_one_waits(
    old: World, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    old.want("a", *BOTH)
    old.host.rename_cgroup("top/be", "moved")
    if made_anew:
        old.host.make_cgroup("top/be/pod")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        patch.setattr("os.pwrite", full)
        old.want("a", *(BOTH if made_anew else ()))
        assert len(old.journal.entries) == 2
        assert not made_anew or old.value("top/be", SHARES) == 1024
    old.want("a")
    assert {old.value(each, SHARES) for each in ("top/moved", "top/moved/pod")} == {1024}


def test_the_namesake_of_a_renamed_one_does_not_say_what_is_ours_there(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds by itself what is wanted by then, while the disk takes no record of the move."""
    old.want("a", ("top/be", IDLE, 1))
    old.host.rename_cgroup("top/be", "moved")
    old.host.make_cgroup("top/be")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        assert Result.IN_FORCE in old.want("a", ("top/be", IDLE, 0))
    old.apply(Plan("a"))
    assert (old.value("top/moved", IDLE), old.value("top/moved", SHARES)) == (0, 1024)
    assert not left(old)


def test_many_that_go_at_once_are_looked_for_in_turns(old: World) -> None:
    names = [f"top/pod{n}" for n in range(100)]
    for name in names:
        old.host.make_cgroup(name)
    old.want("a", *((name, SHARES, 50) for name in names))
    for name in names:
        old.host.remove_cgroup(name)
    looked: list[str] = []
    inode = old.host.inode
    old.host.inode = lambda path: (looked.append(path), inode(path))[1]  # type: ignore[method-assign]
    old.apply(plan("a"))
    assert 0 < len(old.journal.entries) < 100 and len(looked) < 2_000
    for _ in range(10):
        old.apply(plan("a"))
    assert not left(old)
