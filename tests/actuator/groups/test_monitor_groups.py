"""Resctrl monitor groups beside the control groups of the same threads: made, filled, left and
removed in an order that the kernel takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from koordlet_fakefs import Process, Resctrl

from koordlet.actuator.restore import Status
from koordlet.decision.plan import Result
from koordlet.decision.resctrl import PRESENT
from koordlet.decision.resource import Resource
from tests.actuator.world import World, fake

GROUP, SCHEMATA = Resource.RESCTRL_GROUP, Resource.RESCTRL_SCHEMATA
MONITOR, MONITOR_GROUP = Resource.RESCTRL_MONITOR, Resource.RESCTRL_MONITOR_GROUP
A, B = "be/a", "be/b"
ROOT = "/sys/fs/resctrl"
CONTROL = ("koordlet-c", SCHEMATA, "L3:0=f\n")
OURS = "koordlet-c/mon_groups/koordlet-m"
DEFAULT = "mon_groups/koordlet-m"


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    host = fake(request.param, resctrl=Resctrl(rmids=5))
    for cgroup in (A, B):
        host.make_cgroup(cgroup)
    return World(host, str(tmp_path))


def places(world: World, *processes: Process) -> list[str]:
    """For each thread its control group, and its monitor group where it has one."""
    root = world.host.resctrl
    found = []
    for thread in (thread for each in processes for thread in each.threads.values()):
        control, monitor = root.group_of(thread), root.watched.get(thread)
        name = next((n for n, node in root.entries.items() if node is control), "")
        inner = control.entries["mon_groups"].entries
        found.append(name + next((f":{n}" for n, node in inner.items() if node is monitor), ""))
    return found


def test_both_groups_are_made_filled_emptied_and_removed_in_one_turn_each(world: World) -> None:
    process, neighbour = world.host.spawn(A, threads=2), world.host.spawn(B)
    control = (CONTROL, (A, GROUP, "koordlet-c"))
    monitor = ((OURS, MONITOR_GROUP, PRESENT), (A, MONITOR, OURS))
    assert world.want("o", *monitor, *control) == [Result.WRITTEN] * 4
    assert places(world, process, neighbour) == ["koordlet-c:koordlet-m"] * 2 + [""]
    assert world.want("o", *monitor, *control) == [Result.IN_FORCE] * 4
    newcomer = world.host.spawn(A)
    assert sorted(world.want("o", *monitor, *control))[2:] == [Result.WRITTEN] * 2
    assert places(world, newcomer) == ["koordlet-c:koordlet-m"]
    assert world.want("o") == [Result.RESTORED] * 4
    assert places(world, process, neighbour, newcomer) == [""] * 4
    assert world.host.subdirs(f"{ROOT}/mon_groups") == []
    assert "koordlet-c" not in world.host.resctrl.entries and not world.actuator.owned()


def test_who_is_no_longer_counted_stays_in_its_control_group(world: World) -> None:
    process = world.host.spawn(A)
    control = (CONTROL, (A, GROUP, "koordlet-c"))
    world.want("o", *control)
    world.want("m", (OURS, MONITOR_GROUP, PRESENT), (A, MONITOR, OURS))
    assert places(world, process) == ["koordlet-c:koordlet-m"]
    writes = len(world.host.written)
    world.want("m")
    assert places(world, process) == ["koordlet-c"]
    assert len(world.host.written) == writes  # the kernel moved it as the group went
    world.want("m", (OURS, MONITOR_GROUP, PRESENT), (A, MONITOR, OURS))
    world.want("m", (OURS, MONITOR_GROUP, PRESENT))
    assert places(world, process) == ["koordlet-c"]
    assert world.host.subdirs(f"{ROOT}/koordlet-c/mon_groups") == ["koordlet-m"]


def test_a_control_group_that_goes_takes_the_monitor_group_along(world: World) -> None:
    process = world.host.spawn(A)
    world.want("o", CONTROL, (A, GROUP, "koordlet-c"))
    world.want("m", (OURS, MONITOR_GROUP, PRESENT), (A, MONITOR, OURS))
    world.want("o")
    assert places(world, process) == [""]
    assert set(world.want("m", (OURS, MONITOR_GROUP, PRESENT), (A, MONITOR, OURS))) == {
        Result.GONE,
        Result.UNSUPPORTED,
    }
    assert world.want("m") in ([], [Result.RESTORED]) and not world.actuator.owned()


def test_a_thread_of_another_control_group_is_not_counted_and_not_moved(world: World) -> None:
    process = world.host.spawn(A)
    world.host.mkdir(f"{ROOT}/gold")
    world.host.write(f"{ROOT}/gold/tasks", b"%d" % process.pid)
    wants = ((DEFAULT, MONITOR_GROUP, PRESENT), (A, MONITOR, DEFAULT))
    assert set(world.want("m", *wants)) == {Result.WRITTEN, Result.UNSUPPORTED}
    assert any("Can't move task to different control group" in each.text for each in world.heard)
    assert places(world, process) == ["gold"]


def test_who_was_moved_meanwhile_is_not_taken_back(world: World) -> None:
    """Nobody is to count it any more, and in the same turn it gets another control group."""
    process = world.host.spawn(A)
    world.host.mkdir(f"{ROOT}/mon_groups/theirs")
    world.host.write(f"{ROOT}/mon_groups/theirs/tasks", b"%d" % process.pid)
    wants = (CONTROL, (A, GROUP, "koordlet-c"), (A, MONITOR, ""))
    assert world.want("o", *wants) == [Result.WRITTEN] * 3
    assert places(world, process) == ["koordlet-c"]
    assert {item.status for item in world.restore().items} <= {Status.RESTORED, Status.ALREADY}
    assert places(world, process) == [":theirs"]


def test_threads_go_back_to_the_monitor_group_of_somebody(world: World) -> None:
    one, two = world.host.spawn(A), world.host.spawn(A)
    world.host.mkdir(f"{ROOT}/mon_groups/theirs")
    world.host.write(f"{ROOT}/mon_groups/theirs/tasks", b"%d" % one.pid)
    world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT), (A, MONITOR, DEFAULT))
    assert places(world, one, two) == [":koordlet-m"] * 2
    world.restore()
    assert places(world, one, two) == [":theirs", ""]


def test_it_counts_with_its_control_group_where_that_monitor_group_went(world: World) -> None:
    process = world.host.spawn(A)
    world.host.mkdir(f"{ROOT}/mon_groups/theirs")
    world.host.write(f"{ROOT}/mon_groups/theirs/tasks", b"%d" % process.pid)
    world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT), (A, MONITOR, DEFAULT))
    world.host.rmdir(f"{ROOT}/mon_groups/theirs")
    assert world.restore().ok and places(world, process) == [""]


def test_limbo_and_no_rmid_are_told_apart(world: World) -> None:
    """Five RMIDs: the default group has one."""
    for number in range(4):
        world.host.mkdir(f"{ROOT}/mon_groups/{number}")
    assert world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT)) == [Result.UNSUPPORTED]
    assert "every RMID has a group" in world.heard[0].text
    world.host.rmdir(f"{ROOT}/mon_groups/0")
    assert world.want("m") == []
    assert world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT)) == [Result.REFUSED]
    assert "EBUSY (RMIDs of removed groups are in limbo" in world.heard[-1].text
    assert world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT)) == [Result.REFUSED]
    assert not world.actuator.owned()
    world.host.advance(1)
    world.now += 2
    assert world.want("m", (DEFAULT, MONITOR_GROUP, PRESENT)) == [Result.WRITTEN]


class KilledError(BaseException):
    pass


@pytest.mark.parametrize(("op", "path"), [("mkdir", DEFAULT), ("write", f"{DEFAULT}/tasks")])
@pytest.mark.parametrize("after", [0, 1])
def test_a_kill_at_any_write_leaves_nothing(world: World, op: str, path: str, after: int) -> None:
    process = world.host.spawn(A, threads=2)

    def kill() -> None:
        raise KilledError

    world.host.faults.before(f"{ROOT}/{path}", kill, op=op, after=after)  # type: ignore[arg-type]
    wants = ((DEFAULT, MONITOR_GROUP, PRESENT), (A, MONITOR, DEFAULT))
    if (op, after) == ("mkdir", 1):
        world.want("m", *wants)
    else:
        with pytest.raises(KilledError):
            world.want("m", *wants)
    assert world.restore().ok
    assert world.host.subdirs(f"{ROOT}/mon_groups") == [] and places(world, process) == [""] * 2


def test_groups_of_others_are_never_touched(world: World) -> None:
    world.host.spawn(A)
    world.host.mkdir(f"{ROOT}/mon_groups/theirs")
    wants = (
        ("mon_groups/theirs", MONITOR_GROUP, PRESENT),
        ("koordlet-c", MONITOR_GROUP, PRESENT),
        (A, MONITOR, "mon_groups/theirs"),
    )
    assert world.want("o", *wants) == [Result.REFUSED] * 3
    assert all("koordlet-NAME" in each.text for each in world.heard)


def test_many_cgroups_are_found_by_the_one_file_of_their_group(world: World) -> None:
    """Each ``tasks`` file makes the kernel walk all threads."""
    wants: list[tuple[str, Resource, str]] = []
    for number in range(3):
        group = f"mon_groups/koordlet-{number}"
        wants.append((group, MONITOR_GROUP, PRESENT))
        for inner in range(3):
            cgroup = f"pods/{number}/{inner}"
            world.host.make_cgroup(cgroup)
            world.host.spawn(cgroup)
            wants.append((cgroup, MONITOR, group))
    world.want("m", *wants)
    world.host.advance(1)
    reads: list[str] = []
    glob = f"{ROOT}/*tasks"
    world.host.faults.before(glob, lambda: reads.append(""), op="read", times=None)
    assert set(world.want("m", *wants)) == {Result.IN_FORCE}
    assert len(reads) == 3
