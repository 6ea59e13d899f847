"""cgroup v2 has weights where plans speak of shares: a weight of somebody else stays his."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.actuator.restore import Status
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource
from tests.actuator.world import World, fake

IDLE, SHARES = Resource.CPU_IDLE, Resource.CPU_SHARES


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(fake("v2"), str(tmp_path))
    made.host.make_cgroup("be")
    yield made
    made.close()


def weigh(world: World, weight: int) -> None:
    world.host.write(world.path("be", SHARES), b"%d" % weight)


def weight(world: World) -> str:
    return world.host.look(world.path("be", SHARES)).strip()


@pytest.mark.parametrize("foreign", [1, 3, 7])
@pytest.mark.parametrize("restarted", [False, True])
def test_one_beside_ours_is_not_ours(world: World, foreign: int, restarted: bool) -> None:
    """50 shares make weight 2; 7 is what runc 1.3 makes of what that reads as."""
    world.want("a", ("be", SHARES, 50))
    weigh(world, foreign)
    if restarted:
        assert [item.status for item in world.restore().items] == [Status.FOREIGN]
    else:
        assert [each.result for each in world.apply(Plan("a"))] == [Result.CONFLICT]
    assert weight(world) == str(foreign)


@pytest.mark.parametrize("restarted", [False, True])
def test_another_weight_for_the_same_shares_is_in_force_and_stays(
    world: World, restarted: bool
) -> None:
    weigh(world, 500)
    assert world.want("a", ("be", SHARES, 1024)) == [Result.WRITTEN]
    weigh(world, 100)
    assert world.want("a", ("be", SHARES, 1024)) == [Result.IN_FORCE]
    if restarted:
        assert [item.status for item in world.restore().items] == [Status.FOREIGN]
    else:
        assert [each.result for each in world.apply(Plan("a"))] == [Result.CONFLICT]
    assert weight(world) == "100"


def test_it_is_what_goes_back_when_something_else_is_wanted(world: World) -> None:
    world.want("a", ("be", SHARES, 1024))
    weigh(world, 174)  # of 2048 shares
    assert world.want("a", ("be", SHARES, 2048)) == [Result.IN_FORCE]
    assert world.want("a", ("be", SHARES, 512)) == [Result.WRITTEN]
    assert world.restore().ok and weight(world) == "174"


@pytest.mark.parametrize(("left", "stays"), [(100, "77"), (39, "39")])
def test_only_the_weight_that_the_kernel_leaves_is_nobodys(
    world: World, left: int, stays: str
) -> None:
    """Somebody takes ``cpu.idle`` off; 39 is what others make of the same 1024 shares."""
    weigh(world, 77)
    world.want("a", ("be", IDLE, 1))
    world.host.write(world.path("be", IDLE), b"0")
    weigh(world, left)
    world.apply(Plan("a"))
    assert weight(world) == stays
