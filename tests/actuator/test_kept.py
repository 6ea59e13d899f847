"""A value that its owner only keeps gives way where what others want leaves no room for it."""

from __future__ import annotations

from pathlib import Path

from koordlet.actuator.actuator import Actuator
from koordlet.decision.resource import Resource
from tests.actuator.world import World, fake, plan

MIB = 1 << 20
LOW = Resource.MEMORY_LOW
QUOTA, BURST = Resource.CPU_QUOTA_US, Resource.CPU_BURST_US


def test_a_burst_that_is_kept_falls_before_the_quota(world: World) -> None:
    world.want("burst", ("be", BURST, 100_000))
    world.want("limit", ("be", QUOTA, 100_000))
    keeps = plan("burst", keep=[("be", BURST)])
    world.apply(keeps, plan("limit", ("be", QUOTA, 40_000)))
    assert (world.value("be", QUOTA), world.value("be", BURST)) == (40_000, 40_000)
    world.apply(keeps, plan("limit", ("be", QUOTA, 60_000)))
    assert world.value("be", QUOTA) == 60_000
    world.apply(plan("burst"), plan("limit"))
    assert world.value("be", BURST) == 0
    assert not world.actuator.owned()


def test_protection_that_is_kept_falls_with_what_is_wanted(tmp_path: Path) -> None:
    """Together they never promise more than the node has."""
    world = World(fake("v2"), str(tmp_path))
    for cgroup in ("a", "b"):
        world.host.make_cgroup(cgroup)
    world.actuator = Actuator(world.knobs, world.journal, memory_bytes=8192 * MIB)
    world.want("x", ("a", LOW, 6000 * MIB))
    keeps = plan("x", keep=[("a", LOW)])
    world.apply(keeps, plan("y", ("b", LOW, 6000 * MIB)))
    assert [world.value(each, LOW) for each in ("a", "b")] == [4096 * MIB] * 2
    world.apply(keeps, plan("y"))
    assert world.value("a", LOW) == 4096 * MIB  # until its owner judges again
    world.want("x", ("a", LOW, 6000 * MIB))
    assert world.value("a", LOW) == 6000 * MIB
    assert world.restore().ok and world.value("a", LOW) == 0
