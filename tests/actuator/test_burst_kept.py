"""A burst that its owner only keeps does not hold up a quota of somebody else that falls."""

from __future__ import annotations

from koordlet.decision.resource import Resource
from tests.actuator.world import World, plan

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
