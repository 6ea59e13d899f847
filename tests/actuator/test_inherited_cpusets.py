"""CPU lists that v1 cgroups copied from one of ours when they were made."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs import shape

from koordlet.actuator import inherited_cpusets as heirs
from koordlet.actuator.journal import journal as journals
from koordlet.actuator.journal.journal import Intent, load
from koordlet.actuator.merge import Key
from koordlet.actuator.restore import Status
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource, Value
from tests.actuator.journal.test_journal import FullDisk
from tests.actuator.world import BOOT, World, fake, plan, unplug

CPUS = Resource.CPUSET_CPUS
LISTS = ("be", "be/pod", "be/pod/c")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """``be`` is narrowed to CPUs 0-1, then a pod comes that nobody tells the actuator of."""
    world = World(fake("hybrid", topology=shape(cores_per_l3=4)), str(tmp_path))
    world.host.make_cgroup("be")
    world.want("a", ("be", CPUS, "0-1"))
    world.host.make_cgroup("be/pod/c")
    assert [world.value(each, CPUS) for each in LISTS] == ["0-1"] * 3
    return world


def test_copies_go_back_with_their_parent(world: World) -> None:
    results = {each.cgroup: each.result for each in world.apply(plan("a"))}
    assert [results[each] for each in LISTS] == [Result.RESTORED] * 3
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1
    assert not world.journal.entries


def test_copies_go_back_in_a_restore_without_a_daemon(world: World) -> None:
    report = world.restore()
    assert [item.status for item in report.items] == [Status.RESTORED] * 3
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_lists_of_others_stay(world: World) -> None:
    """One that differs is no copy, and what is below it is a copy of that."""
    path = world.path("be/pod", CPUS)
    world.host.write(world.path("be/pod/c", CPUS), b"1")
    world.host.write(path, b"1")
    world.apply(plan("a"))
    assert [world.value(each, CPUS) for each in LISTS[1:]] == ["1", "1"]


def test_a_copy_that_is_wanted_is_journaled_with_what_its_parent_had(world: World) -> None:
    world.want("a", *((each, CPUS, "0") for each in LISTS))
    assert {entry.original.value for entry in world.journal.entries.values()} == {"0-3"}
    world.restore()
    assert {world.value(each, CPUS) for each in LISTS} == {"0-3"}


def test_a_list_from_before_stays_although_it_reads_the_same(tmp_path: Path) -> None:
    world = World(fake("hybrid", topology=shape(cores_per_l3=4)), str(tmp_path))
    world.host.make_cgroup("be/pod/c")
    for cgroup in ("be/pod/c", "be/pod"):
        world.host.write(world.path(cgroup, CPUS), b"1")
    world.want("a", ("be", CPUS, "1"))
    world.restore()
    assert [world.value(each, CPUS) for each in LISTS] == ["0-3", "1", "1"]


@pytest.mark.parametrize("offline", [False, True])
def test_what_is_below_a_copy_is_one_as_well(world: World, offline: bool) -> None:
    """Also where only the upper one was seen before everything goes back."""
    world.want("a", ("be", CPUS, "0-1"), ("be/pod", CPUS, "0-1"))
    assert ("be/pod", CPUS) in world.journal.entries
    if not offline:
        world.want("a", *((each, CPUS, "0-1") for each in LISTS))
        assert ("be/pod/c", CPUS) in world.journal.entries
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_a_copy_whose_first_write_is_refused_stays_in_the_journal(world: World) -> None:
    world.host.faults.add(world.path("be/pod", CPUS), op="write", errno=errno.EPERM, times=None)
    world.want("a", ("be", CPUS, "0-1"), ("be/pod", CPUS, "0"))
    assert ("be/pod", CPUS) in world.journal.entries
    world.host.faults.clear()
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_an_original_whose_intent_a_kill_tore_off_hides_no_copy(world: World) -> None:
    world.want("a", ("be", CPUS, "0-1"), ("be/pod", CPUS, "0-1"))
    intents = [Intent("be/pod", CPUS, (), "a")]
    world.journal.intend(intents)
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_a_copy_below_such_an_original_is_one_of_the_value_above(world: World) -> None:
    """The kill tore off the intents, and the original of the container."""
    world.want("a", *((each, CPUS, "0-1") for each in LISTS[:2]))
    lists = [world.journal.entries[Key(each, CPUS)].original for each in LISTS[:2]]
    world.journal.release([Key("be/pod", CPUS)])
    world.journal.begin([lists[1]], [])
    world.start()
    world.want("a", *((each, CPUS, "0") for each in LISTS))
    assert world.journal.entries[Key("be/pod/c", CPUS)].original.value == lists[0].value == "0-3"
    world.restore()
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_a_container_made_anew_goes_back(world: World) -> None:
    world.apply(plan("a"))
    world.want("a", *((each, CPUS, "0") for each in LISTS))
    world.host.remove_cgroup("be/pod/c")
    world.host.make_cgroup("be/pod/c")
    assert world.value("be/pod/c", CPUS) == "0"
    world.restore()
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


@pytest.mark.parametrize("somebody_else", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("offline", [False, True])
def test_a_copy_that_cannot_be_read_is_not_forgotten(
    world: World, offline: bool, hidden: bool, known: bool, somebody_else: bool
) -> None:
    if known:  # of an older cgroup of this name
        world.want("a", *((each, CPUS, "0-1") for each in LISTS))
        world.host.remove_cgroup("be/pod/c")
        world.host.make_cgroup("be/pod/c")
    path = world.path("be/pod/c", CPUS)
    if hidden:
        world.host.faults.hide(path)
    else:
        world.host.faults.add(path, op="read", errno=errno.EIO, times=None)
    if offline:
        world.restore()
    else:
        world.apply(plan("a"))
    assert [world.value(each, CPUS) for each in LISTS[:2]] == ["0-3"] * 2
    world.host.faults.clear()
    assert world.value("be/pod/c", CPUS) == "0-1"
    if somebody_else:
        world.host.write(path, b"1")
    if offline:
        assert world.restore().ok
    else:
        world.apply(plan("a"), after_s=60)
    assert world.value("be/pod/c", CPUS) == ("1" if somebody_else else "0-3")
    assert not load(world.journal_path, BOOT).entries


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("offline", [False, True])
def test_one_of_its_own_from_before_stays_its_own_over_restarts(
    tmp_path: Path, restarts: int, offline: bool
) -> None:
    """The parent is squeezed to what the child has anyway."""
    world = World(fake("v1", topology=shape(cores_per_l3=4)), str(tmp_path))
    world.host.make_cgroup("be/pod/c")
    for cgroup in ("be/pod/c", "be/pod"):
        world.host.write(world.path(cgroup, CPUS), b"0-1")
    squeezed = tuple((each, CPUS, "0-1") for each in LISTS)
    world.want("a", *squeezed)
    for _ in range(restarts):
        world.start()
        for _ in range(3):
            world.want("a", *squeezed)
    if offline:
        assert world.restore().ok
    else:
        world.apply(Plan("a"))
    assert [world.value(each, CPUS) for each in LISTS] == ["0-3", "0-1", "0-1"]
    assert not load(world.journal_path, BOOT).entries


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_a_group_made_below_a_narrow_one_gets_what_that_gets_back(
    tmp_path: Path, layout: str, killed: bool, grows: bool
) -> None:
    world = World(fake(layout), str(tmp_path))
    world.host.make_cgroup("be/pod/c")
    wide = world.value("be", CPUS)
    world.want("a", *((each, CPUS, "0") for each in LISTS))
    world.host.make_cgroup("be/new/c")  # v1: with the list of its parent
    assert world.value("be/new", CPUS) == ("" if layout == "v2" else "0")
    for cpus in ("0", "0-1") if grows else ("0",):
        world.want("a", *((each, CPUS, cpus) for each in (*LISTS, "be/new")))
    if killed:
        assert world.restore().ok
    else:
        world.apply(Plan("a"))
    assert world.value("be/new", CPUS) == wide
    assert not load(world.journal_path, BOOT).entries


def test_a_copy_of_somebody_elses_list_is_no_copy_of_ours(world: World) -> None:
    """Pods that come while an agent holds the list of their parent have his."""
    for cgroup, cpus in (("be/pod/c", b"1"), ("be/pod", b"1"), ("be", b"1")):
        world.host.write(world.path(cgroup, CPUS), cpus)
    world.host.make_cgroup("be/new")
    world.want("a", *((each, CPUS, "0-1") for each in (*LISTS, "be/new")))
    world.host.remove_cgroup("be/pod")
    assert world.restore().ok
    assert [world.value(each, CPUS) for each in ("be", "be/new")] == ["1", "1"]


def test_a_copy_that_was_not_seen_before_its_parent_grew_goes_back_too(world: World) -> None:
    world.want("a", ("be", CPUS, "0-2"))
    assert world.value("be/pod", CPUS) == "0-1"
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_copies_go_back_where_somebody_else_has_put_their_parent_back(world: World) -> None:
    world.host.write(world.path("be", CPUS), b"0-3")
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_copies_from_which_a_cpu_was_unplugged_go_back(world: World) -> None:
    unplug(world, 1)
    world.host.make_cgroup("be/late")
    assert world.restore().ok
    assert len({world.value(each, CPUS) for each in ("", "be/late", *LISTS)}) == 1


def test_a_list_that_is_not_ours_above_gives_nothing(world: World) -> None:
    world.apply(plan("a"))
    world.cgroups.write("be/pod/c", CPUS, "1")
    world.want("a", ("be/pod/c", CPUS, "0"))
    assert world.restore().ok and world.value("be/pod/c", CPUS) == "1"


def test_what_is_inherited_is_journaled_when_the_disk_permits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = (("be", CPUS, "0-1"), ("be/pod", CPUS, "0-1"))
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(world.journal_path, room=0))
        world.want("a", *wants)
        assert ("be/pod", CPUS) not in world.journal.entries
    world.want("a", *wants)
    assert ("be/pod", CPUS) in world.journal.entries


def test_what_cannot_be_journaled_waits_with_its_parent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        outcomes = world.apply(plan("a"))
        assert [each.result for each in outcomes] == [Result.REFUSED]
        assert "cgroups below have a copy" in outcomes[0].text
        assert world.value("be", CPUS) == "0-1"
    world.apply()
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


def test_a_restore_does_not_wait_for_a_full_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(world.journal_path, room=0))
        world.actuator.restore_all(now=world.now, time=world.now)
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1
    world.want("a", ("be", Resource.CPU_SHARES, 7))
    assert [key.resource for key in load(world.journal_path, BOOT).entries] == [Resource.CPU_SHARES]


def crowd(world: World, count: int, copies: int) -> None:
    """Younger than the list of ``be``; the last ones have a copy of it."""
    for n in range(count):
        world.host.make_cgroup(f"be/n{n:04d}")
        if n < count - copies:
            world.host.write(world.path(f"be/n{n:04d}", CPUS), b"0")


def test_in_a_crowd_copies_are_looked_for_in_several_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list waits for them; what comes meanwhile is found too."""
    monkeypatch.setattr(heirs, "LOOKS", 50)
    crowd(world, 120, 5)
    reads: list[str] = []
    real = world.knobs.read

    def read(cgroup: str, resource: Resource) -> Value:
        if cgroup.startswith("be/n"):
            reads.append(cgroup)
        return real(cgroup, resource)

    monkeypatch.setattr(world.knobs, "read", read)
    (told,) = [each for each in world.apply(plan("a")) if each.cgroup == "be"]
    assert told.result is Result.REFUSED and "71 cgroups below have not been checked" in told.text
    assert len(reads) < 60 and world.value("be", CPUS) == "0-1"
    world.host.make_cgroup("be/late")
    for _ in range(5):
        reads.clear()
        world.apply()
        assert len(reads) < 60
    assert world.value("be", CPUS) == "0-3"
    for cgroup in ("be/n0119", "be/n0115", "be/late", "be/pod", "be/pod/c"):
        assert world.value(cgroup, CPUS) == "0-3"
    assert world.value("be/n0114", CPUS) == "0" and not world.journal.entries


def test_a_restore_that_cannot_wait_looks_at_all_of_a_crowd(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heirs, "LOOKS", 50)
    crowd(world, 120, 5)
    report = world.restore()
    assert report.ok and len(report.items) == 8
    assert world.value("be/n0119", CPUS) == "0-3" and world.value("be/n0114", CPUS) == "0"
