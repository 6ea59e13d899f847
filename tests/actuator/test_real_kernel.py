"""What was wrong once and was seen on a real kernel: values wanted again, copies of CPU lists,
weights of others, renamed cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.kernel.linux import LinuxHost
from tests.actuator.world import World
from tests.conformance.sites import real_site

CPUS, SHARES = Resource.CPUSET_CPUS, Resource.CPU_SHARES
QUOTA, PERIOD = Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US
TOP = f"koordlet-actuator-{os.getpid()}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("needs root to make cgroups")
    with real_site(TOP, {}):
        made = World(LinuxHost(), str(tmp_path))
        yield made
        made.close()


def make(world: World, cgroup: str) -> str:
    """With the CPU list of its parent, as a runtime gives it."""
    for root in world.cgroups.layout.roots:
        with suppress(FileNotFoundError):
            os.mkdir(f"{root}/{TOP}/{cgroup}")
    cpuset = world.cgroups.layout.v1.get("cpuset")
    if cpuset is not None:
        for file in ("cpuset.cpus", "cpuset.mems"):
            above = world.host.read(f"{cpuset}/{TOP}/{cgroup}/../{file}")
            world.host.write(f"{cpuset}/{TOP}/{cgroup}/{file}", above)
    return f"{TOP}/{cgroup}"


def needs(world: World, controller: str) -> None:
    if controller not in world.cgroups.layout.v1:
        pytest.skip(f"no v1 {controller} here")


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("resource", "first", "second"),
    [(CPUS, "0", "0-1"), (SHARES, 50, 4_000), (QUOTA, 5_000, 7_000)],
)
def test_a_value_that_somebody_else_set_meanwhile_does_not_hide_the_one_before(
    world: World, resource: Resource, first: str | int, second: str | int
) -> None:
    be = make(world, "be")
    assert world.want("a", (be, resource, first)) == [Result.WRITTEN]
    world.knobs.write(be, resource, second)
    assert world.want("a", (be, resource, second)) == [Result.IN_FORCE]
    assert world.want("a", (be, resource, first)) == [Result.WRITTEN]
    assert world.knobs.equal(resource, first, world.value(be, resource))


@pytest.mark.kernel
def test_a_list_of_its_own_survives_restarts_under_a_squeezed_parent(world: World) -> None:
    needs(world, "cpuset")
    be, own = make(world, "be"), make(world, "be/own")
    world.knobs.write(own, CPUS, "0")
    wide = world.value(be, CPUS)
    for _ in range(3):
        world.want("a", (be, CPUS, "0"), (own, CPUS, "0"))
        world.start()
    late = make(world, "be/late")
    world.want("a", *((each, CPUS, "0") for each in (be, own, late)))
    assert world.restore().ok
    assert [world.value(each, CPUS) for each in (be, own, late)] == [wide, "0", wide]


@pytest.mark.kernel
def test_a_renamed_cgroup_gets_its_original_back(world: World) -> None:
    needs(world, "cpu")
    be, inner = make(world, "be"), make(world, "be/inner")
    world.want("a", (be, SHARES, 50), (inner, SHARES, 60))
    root = world.cgroups.layout.v1["cpu"]
    os.rename(f"{root}/{be}", f"{root}/{TOP}/moved")
    assert world.restore().ok
    moved = f"{TOP}/moved"
    assert [world.value(each, SHARES) for each in (moved, f"{moved}/inner")] == [1024] * 2


@pytest.mark.kernel
def test_a_quota_and_period_of_which_the_tree_refuses_one_both_stay(world: World) -> None:
    needs(world, "cpu")
    be, inner = make(world, "be"), make(world, "be/inner")
    world.knobs.write(be, QUOTA, 20_000)
    world.knobs.write(inner, QUOTA, 10_000)
    results = world.want("a", (inner, PERIOD, 50_000), (inner, QUOTA, 40_000))
    assert results == [Result.REFUSED] * 2
    assert (world.value(inner, QUOTA), world.value(inner, PERIOD)) == (10_000, 100_000)
    assert not world.journal.entries
