"""Switches and files of the whole machine, and originals that were never in the file."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest

from koordlet.actuator.journal import journal as journals
from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.order import Change, order
from koordlet.actuator.restore import Status
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import ABSENT, Resource, Value
from tests.actuator.test_processes import KilledError
from tests.actuator.world import World, fake, plan, setting

IDENTITY, CORE = Resource.SYSCTL_GROUP_IDENTITY, Resource.SYSCTL_SCHED_CORE
GLOBAL, PODS = Resource.TERWAY_GLOBAL, Resource.TERWAY_PODS
BVT, COOKIE = Resource.CPU_BVT_WARP_NS, Resource.CORE_SCHED_GROUP
GROUP, SCHEMATA = Resource.RESCTRL_GROUP, Resource.RESCTRL_SCHEMATA
QUOTA, SHARES, SCORE = Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.OOM_SCORE_ADJ
TERWAY = "/var/lib/terway/qos"


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    host = fake(request.param, anolis=True, terway=True, core_sched=True)
    host.make_cgroup("be/a")
    return World(host, str(tmp_path))


def test_switches_are_set_off_before_on_and_go_back(world: World) -> None:
    world.want("o", ("", IDENTITY, 0), ("", CORE, 1))
    assert [data for path, data in world.host.written if "/sys/kernel/" in path] == [b"0", b"1"]
    world.host.written.clear()
    assert world.want("o") == [Result.RESTORED] * 2
    assert [path.rpartition("/")[2] for path, _ in world.host.written] == [
        "sched_core",
        "sched_group_identity_enabled",
    ]
    assert (world.value("", IDENTITY), world.value("", CORE)) == (1, 0)


def test_a_switch_of_a_cgroup_or_with_another_value_is_refused(world: World) -> None:
    assert world.want("o", ("be/a", CORE, 1), ("", IDENTITY, 2)) == [Result.REFUSED] * 2


def test_a_kernel_without_switches_and_a_host_without_terway(tmp_path: Path) -> None:
    world = World(fake(), str(tmp_path))
    assert world.want("o", ("", CORE, 1), ("", PODS, "{}")) == [Result.UNSUPPORTED] * 2
    assert "Anolis" in world.heard[0].text and TERWAY in world.heard[1].text


def test_files_of_terway_come_and_go(world: World) -> None:
    world.host.replace(f"{TERWAY}/pod.json", b'{"old": 1}')
    assert world.want("o", ("", PODS, "{}"), ("", GLOBAL, "a 1\n")) == [Result.WRITTEN] * 2
    assert world.host.read(f"{TERWAY}/global_bps_config") == b"a 1\n"
    world.host.replace(f"{TERWAY}/pod.json", b"{foreign}")
    assert world.want("o", ("", PODS, "{}"), ("", GLOBAL, "a 2\n")) == [Result.WRITTEN] * 2
    assert world.actuator.conflicts()[0].found == "{foreign}"
    assert {item.status for item in world.restore().items} == {Status.RESTORED}
    # What somebody else wrote over ours counts as the original from then on.
    assert world.host.read(f"{TERWAY}/pod.json") == b"{foreign}"
    assert world.host.listdir(TERWAY) == ["pod.json"]


def test_they_can_be_wanted_absent(world: World) -> None:
    world.host.replace(f"{TERWAY}/pod.json", b"{}")
    assert world.want("o", ("", PODS, ABSENT), ("", GLOBAL, ABSENT)) == [
        Result.IN_FORCE,
        Result.WRITTEN,
    ]
    assert world.host.listdir(TERWAY) == []
    world.want("o")
    assert world.host.listdir(TERWAY) == ["pod.json"]


@pytest.mark.parametrize("op", ["replace", "rename"])
def test_a_kill_while_a_file_is_replaced_leaves_nothing(world: World, op: str) -> None:
    def kill() -> None:
        raise KilledError

    world.host.faults.before(f"{TERWAY}/*", kill, op=op)  # type: ignore[arg-type]
    with pytest.raises(KilledError):
        world.want("o", ("", GLOBAL, "a 1\n"))
    world.start()
    assert world.restore().ok
    assert world.host.listdir(TERWAY) == []


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_originals_of_files_on_a_disk_outlive_a_reboot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.want("o", ("", GLOBAL, "a 1\n"), ("", CORE, 1), ("be/a", SHARES, 2))
    world.want("o", ("", GLOBAL, "a 2\n"), ("", CORE, 1), ("be/a", SHARES, 2))
    world.close()
    with monkeypatch.context() as patch:  # the disk is full when the daemon starts
        patch.setattr(journals.os, "rename", full_disk)
        stuck = Journal(world.journal_path, boot_id="later")
        assert set(stuck.entries) == {("", GLOBAL)} and "No space" in stuck.problem
        stuck.close()
    for _ in range(2):
        world.start(boot="later")
        assert set(world.journal.entries) == {("", GLOBAL)}
    assert world.want("o", ("", GLOBAL, "a 2\n")) == [Result.IN_FORCE]
    assert world.want("o") == [Result.RESTORED]
    assert world.host.listdir(TERWAY) == []


Write = tuple[str, Resource, Value, Value]


@pytest.mark.parametrize(
    "changes",
    [
        # The first of them has to come first.
        [("koordlet-a", SCHEMATA, ABSENT, "L3:0=f\n"), ("a", GROUP, "", "koordlet-a")],
        [("a", GROUP, "koordlet-a", ""), ("koordlet-a", SCHEMATA, "L3:0=f\n", ABSENT)],
        [("a", BVT, 2, 0), ("", IDENTITY, 1, 0), ("", CORE, 0, 1), ("a", COOKIE, "", "g")],
        [("a", COOKIE, "g", ""), ("", CORE, 1, 0), ("", IDENTITY, 0, 1), ("a", BVT, 0, -1)],
    ],
)
def test_order(changes: list[Write]) -> None:
    steps = order([Change(*each) for each in reversed(changes)], ())
    found = [(step.cgroup, step.resource, step.value) for step in steps if step.last]
    assert found == [(cgroup, resource, new) for cgroup, resource, _, new in changes]


def given(world: World, resource: Resource, value: Value, without: Value) -> list[Result]:
    wanted = msgspec.structs.replace(setting("be/a", resource, value), without=without)
    return [each.result for each in world.apply(Plan("o", (wanted,)))]


@pytest.mark.parametrize(
    ("resource", "value", "without"),
    [(QUOTA, 50_000, -1), (SHARES, 2, 1024), (SCORE, 500, 100), (Resource.CPUSET_CPUS, "0", "0-1")],
)
def test_a_value_that_came_through_the_runtime_goes_back_to_what_was_asked_for(
    world: World, resource: Resource, value: Value, without: Value
) -> None:
    world.host.spawn("be/a")
    world.knobs.write("be/a", resource, value)
    world.host.written.clear()
    assert given(world, resource, value, without) == [Result.IN_FORCE]
    assert given(world, resource, value, without) == [Result.IN_FORCE]
    assert not world.host.written
    assert world.actuator.original("be/a", resource) == without
    world.start()
    assert given(world, resource, value, without) == [Result.IN_FORCE]
    assert world.want("o") == [Result.RESTORED]
    assert world.knobs.equal(resource, without, world.value("be/a", resource))
    assert not world.actuator.owned()


def test_what_was_asked_for_anyway_is_not_ours(world: World) -> None:
    world.knobs.write("be/a", SHARES, 2)
    assert given(world, SHARES, 2, 2) == [Result.IN_FORCE]
    assert not world.actuator.owned()
    assert given(world, SHARES, 512, 2) == [Result.WRITTEN]
    assert world.actuator.original("be/a", SHARES) == 2


def test_an_original_that_no_file_can_hold_is_named(world: World) -> None:
    world.knobs.write("be/a", SHARES, 2)
    wanted = msgspec.structs.replace(setting("be/a", SHARES, 2), without=0)
    (outcome,) = world.apply(Plan("o", (wanted,)))
    assert outcome.result is Result.IN_FORCE and "outside 2..262144" in outcome.text


def amending(owner: str, *wants: tuple[str, Resource, Value]) -> Plan:
    return msgspec.structs.replace(plan(owner, *wants), amends=True)


def test_an_answer_to_an_event_gives_nothing_up_and_looks_at_nothing_else(world: World) -> None:
    world.want("o", ("be", SHARES, 2))
    (_, outcome) = world.apply(amending("o", ("be/a", SHARES, 77)))
    assert outcome.result is Result.WRITTEN and world.value("be", SHARES) == 2
    world.host.faults.add("*/be/cpu*", op="read", times=None)
    (outcome,) = world.actuator.amend(
        (amending("o", ("be/a", SHARES, 512)),), now=world.now, time=world.now
    )
    assert (outcome.result, outcome.cgroup) == (Result.WRITTEN, "be/a")
    world.host.faults.clear()
    results = world.want("o", ("be", SHARES, 2))  # a complete plan: the rest is given up
    assert sorted(results) == [Result.IN_FORCE, Result.RESTORED]


def test_an_amendment_is_merged_with_what_others_want(world: World) -> None:
    world.want("a", ("be", QUOTA, 20_000))
    outcomes = world.actuator.amend((plan("b", ("be", QUOTA, 50_000)),), now=1.0, time=1.0)
    assert {(each.owner, each.result) for each in outcomes} == {
        ("a", Result.IN_FORCE),
        ("b", Result.OUTVOTED),
    }
