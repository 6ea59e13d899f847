"""A value that is wanted, then another, then the first again: it is written each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from koordlet_fakefs.topology import shape

from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from tests.actuator.world import World, fake, replug, unplug

CPUS = Resource.CPUSET_CPUS
VALUES: tuple[tuple[Resource, Value, Value], ...] = (
    (CPUS, "0", "0-1"),
    (Resource.CPU_SHARES, 50, 4_000),
    (Resource.CPU_QUOTA_US, 50_000, 70_000),
    (Resource.MEMORY_LIMIT, (64 << 20) + 5, 128 << 20),
)


@pytest.mark.parametrize("resource, first, second", VALUES)
def test_a_value_that_stands_because_somebody_else_set_it_does_not_hide_the_one_before(
    world: World, resource: Resource, first: Value, second: Value
) -> None:
    assert world.want("a", ("be/pod/box", resource, first)) == [Result.WRITTEN]
    world.knobs.write("be/pod/box", resource, second)
    assert world.want("a", ("be/pod/box", resource, second)) == [Result.IN_FORCE]
    assert world.want("a", ("be/pod/box", resource, first)) == [Result.WRITTEN]
    assert world.knobs.equal(resource, first, world.value("be/pod/box", resource))
    assert world.restore().ok


def test_a_cpu_that_comes_back_after_it_was_unplugged_is_given_out_again(tmp_path: Path) -> None:
    world = World(fake("v1", topology=shape(cores_per_l3=4)), str(tmp_path))
    world.host.make_cgroup("be")
    world.want("a", ("be", CPUS, "0-2"))
    unplug(world, 2)
    assert world.want("a", ("be", CPUS, "0-1")) == [Result.IN_FORCE]
    replug(world, 2)
    assert world.want("a", ("be", CPUS, "0-2")) == [Result.WRITTEN]
    assert world.value("be", CPUS) == "0-2"
    assert world.restore().ok and world.value("be", CPUS) == "0-3"
