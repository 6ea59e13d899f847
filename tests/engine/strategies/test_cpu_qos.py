"""Which mechanism CPU QoS takes on which machine, and that it gives it up again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.decision.resource import Resource
from tests.daemon.world import APPLICATIONS, CPU_QOS, FEATURES, LAYOUTS, World
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
USUAL_SHARES = {"v2": 2598}
"""What a weight of 100 is in shares; on v1 it is 1024."""
IDENTITY = """
[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true
groupIdentity = 2
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
"""
CPU_ONLY = (Resource.CPU_QUOTA_US, Resource.CPU_SHARES)


def _hook_texts(world: World) -> str:
    return " | ".join(
        event.text
        for event in world.parts.events.recent()
        if event.decision is not None and event.decision.owner == "cpu-qos"
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_idle_for_an_application_nobody_else_manages(make_world: MakeWorld, layout: str) -> None:
    world = make_world(CPU_QOS + APPLICATIONS, layout)
    world.application("shop", 1.0)
    world.application("batch", 4.0)
    world.start()
    assert world.value("batch", Resource.CPU_IDLE) == 1
    assert world.value("shop", Resource.CPU_IDLE) == 0
    assert "cpu.idle is 1" in _hook_texts(world)
    world.reload(CPU_QOS + APPLICATIONS + "[hooks.cpu-qos]\nenable = false\n")
    world.run(1)
    assert world.value("batch", Resource.CPU_IDLE) == 0
    assert world.value("batch", Resource.CPU_SHARES) == USUAL_SHARES.get(layout, 1024)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weight_where_idle_is_missing_or_switched_off(make_world: MakeWorld, layout: str) -> None:
    for body, features in (
        (CPU_QOS + APPLICATIONS, CPU_ONLY),
        (CPU_QOS + APPLICATIONS + "[hooks.cpu-qos]\nidle = false\n", FEATURES),
    ):
        world = make_world(body, layout)
        world.application("shop", 1.0)
        world.application("batch", 4.0)
        world.start(features)
        assert world.value("batch", Resource.CPU_IDLE) == 0
        assert world.value("batch", Resource.CPU_SHARES) == 2
        assert world.value("shop", Resource.CPU_SHARES) == USUAL_SHARES.get(layout, 1024)


def test_a_switch_of_mechanism_at_a_reload(make_world: MakeWorld) -> None:
    world = make_world(CPU_QOS + APPLICATIONS)
    world.application("shop", 1.0)
    world.application("batch", 4.0)
    world.start()
    world.reload(CPU_QOS + APPLICATIONS + "[hooks.cpu-qos]\nidle = false\n")
    world.run(1)
    assert world.value("batch", Resource.CPU_IDLE) == 0
    assert world.value("batch", Resource.CPU_SHARES) == 2
    world.reload(CPU_QOS + APPLICATIONS)
    world.run(1)
    assert world.value("batch", Resource.CPU_IDLE) == 1
    world.reload(APPLICATIONS)
    world.run(1)
    assert world.value("batch", Resource.CPU_IDLE) == 0
    assert world.value("batch", Resource.CPU_SHARES) == 1024
    assert world.views.status().journal.entries == 0


def test_group_identity_where_the_kernel_has_it(make_world: MakeWorld) -> None:
    world = make_world(IDENTITY + APPLICATIONS, "comount", anolis=True)
    world.application("shop", 1.0)
    world.application("batch", 4.0)
    burstable = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.start((*FEATURES, Resource.CPU_BVT_WARP_NS))
    bvt = Resource.CPU_BVT_WARP_NS
    assert world.value("batch", bvt) == -1
    assert world.value("shop", bvt) == 2
    assert world.value(burstable.pod, bvt) == 2
    assert world.value("kubepods/besteffort", bvt) == -1
    assert world.value("batch", Resource.CPU_IDLE) == 0
    late = world.host.make_pod("cgroupfs", "besteffort", "44444444-0000-4000-8000-000000000004")
    world.run(0.1)
    assert world.value(late.pod, bvt) == -1


def test_without_any_mechanism_the_hook_says_so_once(make_world: MakeWorld) -> None:
    world = make_world(CPU_QOS + APPLICATIONS)
    world.application("batch", 4.0)
    world.start((Resource.CPU_QUOTA_US,))
    world.run(65)
    assert _hook_texts(world).count("this kernel has nothing that cpu-qos needs") == 1
    (hook,) = [s for s in world.views.status().strategies if s.name == "cpu-qos"]
    assert "this kernel has nothing that cpu-qos needs" in hook.result
