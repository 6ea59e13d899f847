"""How far is looked for the busiest process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.collectors.waits.busiest import (
    LEAST_MS_PER_S,
    MOST_CGROUPS,
    MOST_LOOKED_AT,
    MOST_PROCESSES,
    Busiest,
)
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.kernel.background import no_pause
from tests.collectors.world import World

VICTIM = Group(Kind.POD, "web")


@pytest.fixture
def world() -> World:
    return World("v2")


def _counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each file that is read from now on."""
    read: Callable[[str], bytes] = world.host.read
    seen: list[str] = []

    def counting(path: str) -> bytes:
        seen.append(path)
        return read(path)

    monkeypatch.setattr(world.host, "read", counting)
    return seen


def test_a_crowd_of_cgroups_and_processes_is_looked_at_up_to_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = [f"system.slice/u{number}.service" for number in range(MOST_LOOKED_AT + 2)]
    for unit in units:
        world.host.make_cgroup(unit)
        for _ in range(MOST_PROCESSES + 5):
            world.host.spawn(unit, comm="many")
    for number in range(2 * MOST_CGROUPS):
        world.host.make_cgroup(f"{units[0]}/c{number:02}")
    row = {Group(Kind.SYSTEM, unit): 100.0 - n for n, unit in enumerate(units)}
    busiest = Busiest(world.host, "/sys/fs/cgroup")
    seen = _counted(world, monkeypatch)
    found = busiest.of({VICTIM: row}, ((), ()), no_pause)
    assert list(found) == [(unit, "system", "many") for unit in units[:MOST_LOOKED_AT]]
    assert sum(path.startswith("/proc/") for path in seen) == MOST_LOOKED_AT * MOST_PROCESSES
    assert sum(units[0] in path for path in seen) == MOST_CGROUPS


def test_pods_the_root_and_who_takes_little_are_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host.make_cgroup("system.slice/little.service")
    row = {
        Group(Kind.POD, "batch"): 500.0,
        Group(Kind.SYSTEM, "/"): 500.0,
        Group(Kind.KERNEL, ""): 500.0,
        Group(Kind.SYSTEM, "system.slice/little.service"): LEAST_MS_PER_S - 1,
        Group(Kind.APPLICATION, "gone"): 500.0,
        Group(Kind.SYSTEM, "system.slice/gone.service"): 500.0,
    }
    seen = _counted(world, monkeypatch)
    busiest = Busiest(world.host, "/sys/fs/cgroup")
    assert busiest.of({VICTIM: row}, ((), ()), no_pause) == {}
    assert seen == ["/sys/fs/cgroup/system.slice/gone.service/cgroup.procs"]
