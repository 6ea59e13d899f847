"""Kubelet, systemd and runtimes write over our values by right: answered at once, no conflict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.actuator.rewrites import BURST
from koordlet.actuator.sharing import likely
from koordlet.decision.plan import Plan, Result, Setting
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.kernel.cgroup.kubepods import is_below_root
from tests.actuator.world import WHY, World, fake, plan

BE = "kubepods.slice/kubepods-besteffort.slice"
POD = f"{BE}/kubepods-besteffort-pod0f3a.slice"
SCOPE = f"{POD}/cri-containerd-{'a' * 64}.scope"
QUOTA, MIN, SHARES = Resource.CPU_QUOTA_US, Resource.MEMORY_MIN, Resource.CPU_SHARES
WANT = (BE, QUOTA, 50_000)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(fake("v2"), str(tmp_path))
    for cgroup in ("kubepods.slice", BE, POD, SCOPE, "other.slice"):
        made.host.make_cgroup(cgroup)
    yield made
    made.close()


def test_a_kubelet_that_resets_its_slice_each_minute_costs_one_turn_each_time(world: World) -> None:
    world.want("be", WANT, after_s=0)
    for _ in range(60):
        world.now += 59
        world.cgroups.write(BE, QUOTA, UNLIMITED)
        assert world.want("be", WANT) == [Result.WRITTEN]
        assert "kubelet with the systemd driver" in world.heard[0].text
        assert not world.actuator.conflicts() and world.value(BE, QUOTA) == 50_000


def test_twenty_pods_that_come_and_go_in_a_minute_are_no_conflict(world: World) -> None:
    world.want("be", WANT)
    for _ in range(300):
        world.cgroups.write(BE, QUOTA, UNLIMITED)
        assert world.want("be", WANT, after_s=1.5) == [Result.WRITTEN]
    assert not world.actuator.conflicts()


@pytest.mark.parametrize("cgroup", [POD, SCOPE, "kubepods.slice", BE])
@pytest.mark.parametrize("resource", [MIN, Resource.MEMORY_LOW])
def test_a_kubelet_with_memory_qos_shares_floors(
    world: World, cgroup: str, resource: Resource
) -> None:
    """0 with each create and resize, and at its start."""
    want = (cgroup, resource, 64 << 20)
    world.want("memory-qos", want)
    for _ in range(20):
        world.now += 15
        world.cgroups.write(cgroup, resource, 0)
        assert world.want("memory-qos", want) == [Result.WRITTEN]
        assert "kubelet 1.37 (MemoryQoS)" in world.heard[0].text
        assert world.value(cgroup, resource) == 64 << 20
    assert not world.actuator.conflicts()


@pytest.mark.parametrize(
    "resource", [MIN, Resource.MEMORY_LOW, Resource.MEMORY_HIGH], ids=["min", "low", "high"]
)
def test_amounts_of_kubelet_are_shared_as_long_as_they_are_rare(
    world: World, resource: Resource
) -> None:
    """With ``memoryReservationPolicy`` and ``memoryThrottlingFactor`` each resize writes one."""
    want = (SCOPE, resource, 64 << 20)
    world.want("memory-qos", want)
    world.now += 60
    for number in range(3):
        world.now += 15
        world.cgroups.write(SCOPE, resource, (40 + number) << 20)
        assert world.want("memory-qos", want) == [Result.WRITTEN]
        assert "kubelet 1.37 (MemoryQoS)" in world.heard[0].text
        assert world.actuator.original(SCOPE, resource) == (40 + number) << 20
    assert not world.actuator.conflicts()
    for number in range(30):
        world.cgroups.write(SCOPE, resource, (50 + number) << 20)
        world.want("memory-qos", want)
    assert world.actuator.conflicts()


@pytest.mark.parametrize(
    ("cgroup", "resource", "found", "who"),
    [
        (BE, QUOTA, UNLIMITED, "kubelet with the systemd driver or systemd (daemon-reload"),
        ("kubepods/besteffort", QUOTA, UNLIMITED, "another process"),
        ("kubepods/besteffort", MIN, 0, "kubelet 1.37 (MemoryQoS)"),
        (SCOPE, QUOTA, UNLIMITED, "systemd (daemon-reload"),
        (SCOPE, QUOTA, 70_000, "another process"),
        ("system.slice/db.service", Resource.MEMORY_HIGH, UNLIMITED, "systemd (daemon-reload"),
        ("system.slice/db.service", Resource.CPUSET_CPUS, "", "systemd (daemon-reload"),
        ("system.slice/db.service", Resource.MEMORY_HIGH, 5 << 20, "another process"),
        ("batch", QUOTA, UNLIMITED, "another process"),
    ],
)
def test_who_has_probably_written(cgroup: str, resource: Resource, found: Value, who: str) -> None:
    assert likely(cgroup, resource, found, 60.0).startswith(who)
    if is_below_root(cgroup) and "pod0f3a" in cgroup:
        assert "container runtime" in likely(cgroup, resource, found, 1.0)


def test_who_does_so_all_the_time_is_a_second_writer_after_all(world: World) -> None:
    world.want("be", WANT)
    answered = 0
    for _ in range(600):
        world.cgroups.write(BE, QUOTA, UNLIMITED)
        answered += world.want("be", WANT, after_s=0.1).count(Result.WRITTEN)
    assert answered < BURST + 60 + 10
    assert world.actuator.conflicts()


@pytest.mark.parametrize(
    ("cgroup", "found"), [(BE, 70_000), ("other.slice", UNLIMITED)], ids=["value", "place"]
)
def test_other_values_and_other_places_are_conflicts(
    world: World, cgroup: str, found: Value
) -> None:
    world.want("be", (cgroup, QUOTA, 50_000))
    world.now += 60
    world.cgroups.write(cgroup, QUOTA, found)
    world.want("be", (cgroup, QUOTA, 50_000))
    assert world.actuator.conflicts()


def test_a_clock_that_is_set_back_makes_no_new_cgroup_of_an_old_one(world: World) -> None:
    world.want("be", (SCOPE, QUOTA, 50_000))
    world.now += 60
    world.cgroups.write(SCOPE, QUOTA, 70_000)
    (key,) = [key for _, key in world.actuator.claims()]
    world.actuator.look_again([key], now=world.now, time=world.now - 3600)
    assert world.actuator.conflicts()


def test_nobody_sets_up_a_class_while_koordlet_starts(world: World) -> None:
    want = (BE, QUOTA, 50_000)
    world.want("be", want)
    world.cgroups.write(BE, QUOTA, 70_000)
    world.want("be", want)
    assert world.actuator.conflicts()


def test_a_runtime_that_sets_up_what_it_has_made_gives_the_original(world: World) -> None:
    want = (SCOPE, MIN, 64 << 20)
    world.want("memory", want)
    for value in (0, 32 << 20):
        world.cgroups.write(SCOPE, MIN, value)
        assert world.want("memory", want) == [Result.WRITTEN]
    assert not world.actuator.conflicts()
    assert world.actuator.original(SCOPE, MIN) == 32 << 20


def test_a_resize_to_another_limit_under_a_raised_quota_is_no_conflict(world: World) -> None:
    def raised(limit: int) -> Plan:
        setting = Setting(SCOPE, QUOTA, 2 * limit, WHY, raises=limit)
        return Plan("burst", (setting,))

    world.cgroups.write(SCOPE, QUOTA, 50_000)
    world.apply(raised(50_000))
    world.now += 60
    for limit in (40_000, 60_000, 45_000):
        world.cgroups.write(SCOPE, QUOTA, limit)
        (outcome,) = world.apply(raised(limit))
        assert outcome.result is Result.WRITTEN and world.actuator.original(SCOPE, QUOTA) == limit
    assert not world.actuator.conflicts()


def test_shares_of_a_pods_limit_that_go_with_its_first_resize_are_no_conflict(world: World) -> None:
    """A container without resources begins with shares of the pod's limit, and then has 2."""
    world.cgroups.write(SCOPE, SHARES, 512)
    world.want("batch-resource", (SCOPE, SHARES, 256))
    world.now += 60
    world.cgroups.write(SCOPE, SHARES, 2)
    assert world.want("batch-resource", (SCOPE, SHARES, 256)) == [Result.WRITTEN]
    assert not world.actuator.conflicts() and world.actuator.original(SCOPE, SHARES) == 2


def test_a_group_kill_that_systemd_takes_away_is_given_back(world: World) -> None:
    """It writes 0 with the memory of a scope whose maker did not say OOMPolicy (runc 1.3)."""
    want = (SCOPE, Resource.MEMORY_OOM_GROUP, 1)
    world.want("memory-qos", want)
    world.now += 60
    world.cgroups.write(SCOPE, Resource.MEMORY_OOM_GROUP, 0)
    assert world.want("memory-qos", want) == [Result.WRITTEN]
    assert "systemd" in world.heard[0].text and not world.actuator.conflicts()


def test_what_a_pod_at_its_end_resets_is_no_conflict(world: World) -> None:
    world.cgroups.write(POD, MIN, 32 << 20)
    world.want("memory", (POD, MIN, 64 << 20))
    world.now += 60
    world.cgroups.write(POD, MIN, 0)
    (outcome,) = world.apply(Plan("memory"))
    assert outcome.result is Result.RESTORED and not world.actuator.conflicts()
    assert world.value(POD, MIN) == 0 and not world.actuator.owned()


def test_a_look_at_what_was_just_written_leaves_other_files_alone(world: World) -> None:
    wants = (WANT, (POD, SHARES, 512))
    world.apply(plan("be", *wants))
    world.now += 30
    world.cgroups.write(BE, QUOTA, UNLIMITED)
    world.cgroups.write(POD, SHARES, 1024)
    (key,) = [key for _, key in world.actuator.claims() if key.resource is QUOTA]
    outcomes = world.actuator.look_again([key], now=world.now, time=world.now)
    assert [(each.key, each.result) for each in outcomes] == [(key, Result.WRITTEN)]
    assert world.value(BE, QUOTA) == 50_000 and world.value(POD, SHARES) != 512


@pytest.mark.parametrize(
    ("resource", "value", "others"),
    [
        (Resource.CPUSET_CPUS, "0", ("",)),
        (QUOTA, 50_000, (UNLIMITED,)),
        (MIN, 64 << 20, (0,)),
        (SHARES, 4096, (1024,)),
        (QUOTA, 50_000, (UNLIMITED, UNLIMITED)),
        (Resource.CPUSET_CPUS, "0", ("", "", "")),
        (QUOTA, 50_000, (UNLIMITED, 70_000)),
        (QUOTA, 50_000, (UNLIMITED, 70_000, UNLIMITED)),
    ],
)
def test_a_write_between_ours_and_its_reading_is_not_taken_for_rounding(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    resource: Resource,
    value: Value,
    others: tuple[Value, ...],
) -> None:
    """systemd resets the slice at that moment: seen with kubelet 1.37 and systemd 257."""
    want, write, coming = (BE, resource, value), world.knobs.write, list(others)

    def write_and_lose(cgroup: str, of: Resource, written: Value) -> None:
        write(cgroup, of, written)
        if coming:
            world.cgroups.write(cgroup, of, coming.pop(0))

    monkeypatch.setattr(world.knobs, "write", write_and_lose)
    world.want("be", want)
    world.want("be", want)
    assert world.knobs.equal(resource, value, world.value(BE, resource))
    assert not coming and not world.actuator.conflicts()
