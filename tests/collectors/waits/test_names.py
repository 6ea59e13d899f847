"""Whose cgroups are whose, while they come and go."""

from __future__ import annotations

import pytest
from koordlet_fakefs.bpf.run_queue import FakeRunQueue

from koordlet.collectors.waits.groups import Group, Kind, Place
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.run_queue import RunQueueCollector
from koordlet.kernel.background import no_pause
from koordlet.kernel.cgroup.ids import MOST_IDS
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

MS = 1_000_000


@pytest.fixture
def world() -> World:
    return World("v2")


def _id(world: World, cgroup: str) -> int:
    return world.host.inode(f"{world.cgroups.layout.reference_root}/{cgroup}")


def _names(world: World) -> Names:
    return Names(world.host, world.cgroups.layout.reference_root)


def test_a_job_that_has_ended_before_the_look_keeps_its_name(world: World) -> None:
    """It lived for five seconds, between two looks."""
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    collector = RunQueueCollector(world.host, world.cgroups.layout, world.store)
    world.runner = world.runner_of(collector)
    world.rounds(3)
    alone = world.pods
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    world.rounds(3)
    queue.wait(_id(world, ls.containers[0].cgroup), _id(world, be.containers[0].cgroup), 100 * MS)
    world.rounds(2)
    for each in (be.containers[0].cgroup, be.cgroup):
        world.host.remove_cgroup(each)
    world.pods = alone
    found = {}
    for _ in range(10):
        found |= world.samples(world.rounds())
    assert found["pod_cpu_wait", UID2, "pod", UID] == pytest.approx(10.0)


def test_a_container_that_comes_later_has_its_pod_s_name(world: World) -> None:
    names = _names(world)
    pod = world.pod("besteffort", UID2, "batch")
    names.follow((world.pods, ()), no_pause)
    world.host.make_cgroup(f"{pod.cgroup}/later")
    later = _id(world, f"{pod.cgroup}/later")
    assert names.of({later}, (world.pods, ()), no_pause)[later] == Group(Kind.POD, UID2)


def test_a_cgroup_that_is_no_application_any_more_is_part_of_the_system(world: World) -> None:
    names = _names(world)
    world.application("shop", "shop.slice")
    shop = _id(world, "shop.slice")
    subjects = (), world.applications
    names.follow(subjects, no_pause)
    assert names.of({shop}, subjects, no_pause)[shop] == Group(Kind.APPLICATION, "shop")
    names.follow(((), ()), no_pause)
    assert names.of({shop}, ((), ()), no_pause)[shop] == Group(Kind.SYSTEM, "shop.slice")


def test_a_victim_with_thousands_of_cgroups_takes_no_room_from_a_later_one(world: World) -> None:
    hostile = world.pod("burstable", UID, "many", raw=QoSClass.LS).containers[0]
    for number in range(2 * MOST_IDS):
        world.host.make_cgroup(f"{hostile.cgroup}/n{number}")
    later = world.pod("burstable", UID2, "web", raw=QoSClass.LS).containers[0]
    world.host.make_cgroup(f"{later.cgroup}/init.scope")
    names = _names(world)
    names.list_victims((world.pods, ()), no_pause)
    first = list(names.victims.items())[:4]
    assert [place for _, place in first] == [
        Place(hostile.cgroup, Group(Kind.POD, UID), "many"),
        Place(later.cgroup, Group(Kind.POD, UID2), "web"),
    ] * 2
    assert first[0][0] == _id(world, hostile.cgroup)
    assert first[1][0] == _id(world, later.cgroup)
    assert first[3][0] == _id(world, f"{later.cgroup}/init.scope")
    assert len(names.victims) == MOST_IDS + 2
    assert names.cut == (hostile.cgroup,)


def test_what_is_not_watched_and_what_is_lost_is_shown(world: World) -> None:
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    web = world.pod("burstable", UID, "web", raw=QoSClass.LS).containers[0]
    for number in range(MOST_IDS):
        world.host.make_cgroup(f"{web.cgroup}/n{number}")
    world.runner = world.runner_of(RunQueueCollector(world.host, world.cgroups.layout, world.store))
    world.rounds(2)
    queue.lost = 7
    world.rounds(10)
    (health,) = world.runner.health()
    assert health.skipped == 2
    assert health.skipped_example == (
        f"{web.cgroup} has more than {MOST_IDS} cgroups, not all are watched"
    )
