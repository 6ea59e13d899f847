"""Rounds of a collector that reads beside the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from koordlet.collectors.base import Collector, Round
from koordlet.collectors.devices.gpu import GpuCollector
from koordlet.collectors.devices.rdma import RdmaCollector
from tests.collectors.world import World


def collector(world: World, name: str) -> Collector:
    return next(each for each in world.runner.collectors if each.name == name)


def begin(world: World) -> Round:
    """A round in which each slow collector is due, after what an earlier one has begun."""
    if sum(wait(world, name) for name in ("gpu", "rdma")):
        world.rounds()
    world.host.advance(10)
    return world.round()


def reading(world: World, name: str) -> Round:
    """Two rounds: in the first a reading begins, the second takes what it found."""
    begin(world)
    wait(world, name)
    return world.rounds()


def wait(world: World, name: str) -> bool:
    """Whether something was begun; it has ended now."""
    found = collector(world, name)
    assert isinstance(found, GpuCollector | RdmaCollector)
    if not found._aside.runs:
        return False
    until(lambda: found._aside.has_ended)
    return True


def until(is_so: Callable[[], bool]) -> None:
    """Within a minute, whatever else the machine does."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.002)
