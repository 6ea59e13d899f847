"""Somebody else takes ``cpu.idle`` off, which resets the shares: what he writes there afterwards is
his, what the kernel left there is nobody's."""

from __future__ import annotations

import errno

import pytest

from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from tests.actuator.world import World, plan

IDLE, SHARES = Resource.CPU_IDLE, Resource.CPU_SHARES
ORIGINAL, FOREIGN = 512, 4096


def is_idle_of_ours(world: World) -> None:
    world.cgroups.write("be", SHARES, ORIGINAL)
    world.want("hook", ("be", IDLE, 1))


def clear(world: World, shares: Value | None = None) -> None:
    world.cgroups.write("be", IDLE, 0)
    if shares is not None:
        world.cgroups.write("be", SHARES, shares)


def check(world: World, shares: Value) -> None:
    assert world.value("be", IDLE) == 0
    assert world.cgroups.equal(SHARES, shares, world.value("be", SHARES))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("written", "left"), [(FOREIGN, FOREIGN), (None, ORIGINAL)])
def test_at_the_end_his_value_stays_and_that_of_the_kernel_goes(
    world: World, restarts: bool, written: Value | None, left: Value
) -> None:
    is_idle_of_ours(world)
    clear(world, written)
    if restarts:
        assert world.restore().ok
    else:
        world.apply(plan("hook"))
    check(world, left)
    assert not world.actuator.owned() or restarts


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_idle_is_not_set_while_the_shares_that_it_resets_cannot_be_read(
    world: World, before: bool, hidden: bool
) -> None:
    """``before``: it was set once, so that the journal still has the shares of then."""
    path = world.path("be", SHARES)
    if before:
        is_idle_of_ours(world)
        clear(world)
    world.cgroups.write("be", SHARES, FOREIGN)
    if hidden:
        world.host.faults.hide(path)
    else:
        world.host.faults.add(path, op="read", errno=errno.EIO, times=None)
    assert set(world.want("hook", ("be", IDLE, 1))) == {Result.REFUSED}
    assert world.value("be", IDLE) == 0
    world.host.faults.clear()
    assert Result.WRITTEN in world.want("hook", ("be", IDLE, 1), after_s=60)
    world.want("hook")
    check(world, FOREIGN)


@pytest.mark.parametrize(("written", "left"), [(FOREIGN, FOREIGN), (None, ORIGINAL)])
def test_idle_that_is_set_again_takes_what_it_finds_along(
    world: World, written: Value | None, left: Value
) -> None:
    is_idle_of_ours(world)
    clear(world, written)
    world.want("hook", ("be", IDLE, 1))
    assert world.value("be", IDLE) == 1
    world.start()
    world.want("hook", ("be", IDLE, 1))
    world.want("hook")
    check(world, left)


@pytest.mark.parametrize(("written", "left"), [(FOREIGN, FOREIGN), (None, ORIGINAL)])
def test_while_it_waits_for_a_second_writer(
    world: World, written: Value | None, left: Value
) -> None:
    is_idle_of_ours(world)
    for _ in range(3):
        clear(world, written)
        world.want("hook", ("be", IDLE, 1))
    assert world.actuator.conflicts()
    world.want("hook", ("be", IDLE, 1), after_s=0.1)
    check(world, left)
    world.want("hook")
    check(world, left)


def test_shares_that_another_owner_wants_keep_their_original(world: World) -> None:
    is_idle_of_ours(world)
    world.want("weight", ("be", SHARES, 100))
    for _ in range(3):
        clear(world)
        world.apply()
    check(world, 100)
    world.apply(plan("hook"), plan("weight"))
    check(world, ORIGINAL)
