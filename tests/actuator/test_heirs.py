"""CPU lists that v1 cgroups copied from one of ours when they were made."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs import shape

from koordlet.actuator.restore import Status
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from tests.actuator.world import World, fake, plan

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


def test_a_container_made_anew_goes_back(world: World) -> None:
    world.apply(plan("a"))
    world.want("a", *((each, CPUS, "0") for each in LISTS))
    world.host.remove_cgroup("be/pod/c")
    world.host.make_cgroup("be/pod/c")
    assert world.value("be/pod/c", CPUS) == "0"
    world.restore()
    assert len({world.value(each, CPUS) for each in ("", *LISTS)}) == 1


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
