"""Containers in the layout of crun under the systemd driver, as CRI-O uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Resources
from tests.daemon.world import NO_ALARMS, World

R = Resource
UID = "44444444-0000-4000-8000-000000000004"
POD = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
BOX = "b" * 64
SCOPE = f"{POD}/crio-{BOX}.scope"
INNER = f"{SCOPE}/container"
BURSTS = """
[nri]
enable = true
[slo.cpuBurstStrategy]
policy = "auto"
cpuBurstPercent = 100
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, BURSTS + NO_ALARMS, "v2")
    for cgroup in ("kubepods.slice", "kubepods.slice/kubepods-burstable.slice", POD, SCOPE):
        made.host.make_cgroup(cgroup)
    return made


def quotas(world: World, quota_us: int) -> None:
    for cgroup in (POD, SCOPE, INNER):
        world.parts.cgroups.write(cgroup, R.CPU_QUOTA_US, quota_us)


def tell(world: World) -> None:
    resources = Resources(limit_cpu_milli=500)
    container = ContainerFacts(f"cri-o://{BOX}", SCOPE, "main", False, resources=resources)
    pod = PodFacts(UID, cgroup=POD, name="web", namespace="ns", containers=(container,))
    world.parts.reported["nri"].upsert(pod)


def test_both_cgroups_get_the_limits_also_where_the_inner_one_comes_later(world: World) -> None:
    world.start()
    tell(world)
    world.run(1)
    world.host.make_cgroup(INNER)
    world.host.deliver()
    quotas(world, 50_000)
    world.run(3)
    bursts = [world.value(cgroup, R.CPU_BURST_US) for cgroup in (POD, SCOPE, INNER)]
    assert bursts == [50_000] * 3
    world.reload(NO_ALARMS + '[slo.cpuBurstStrategy]\npolicy = "none"\n')
    world.run(3)
    assert [world.value(cgroup, R.CPU_BURST_US) for cgroup in (SCOPE, INNER)] == [0, 0]
    assert not world.parts.actuator.owned() and world.value(INNER, R.CPU_QUOTA_US) != UNLIMITED


def test_a_resize_makes_room_in_both(world: World) -> None:
    world.host.make_cgroup(INNER)
    world.start()
    tell(world)
    quotas(world, 50_000)
    world.run(3)
    with pytest.raises(OSError, match="Invalid argument"):
        world.parts.cgroups.write(INNER, R.CPU_QUOTA_US, 40_000)
    (pod,) = world.parts.state.pods()
    assert pod.containers[0].inner == INNER
    world.parts.reported["nri"].upsert(
        PodFacts(
            UID,
            containers=(
                ContainerFacts(
                    f"cri-o://{BOX}", SCOPE, "main", False, resources=Resources(limit_cpu_milli=400)
                ),
            ),
        )
    )
    world.run(2)
    quotas(world, 40_000)
    assert world.value(INNER, R.CPU_BURST_US) == 40_000


def test_what_the_application_makes_inside_is_no_inner_cgroup_of_the_runtime(world: World) -> None:
    world.host.make_cgroup(f"{SCOPE}/init.scope")
    world.start()
    (pod,) = world.parts.state.pods()
    assert pod.containers[0].inner == ""
    world.host.make_cgroup(INNER)
    world.run(1)
    assert world.parts.state.pods()[0].containers[0].inner == INNER
    world.host.remove_cgroup(INNER)
    world.run(1)
    assert world.parts.state.pods()[0].containers[0].inner == ""
