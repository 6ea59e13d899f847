"""L3 cache and memory traffic by class."""

from __future__ import annotations

import pytest
from koordlet_fakefs import shape

from koordlet.decision.metrics import RESCTRL_LLC, RESCTRL_MB
from koordlet.kernel.parse import ParseError
from koordlet.kernel.resctrl import monitored
from tests.collectors.world import World

ROOT = "/sys/fs/resctrl"


@pytest.fixture
def world() -> World:
    world = World(resctrl=True, topology=shape(sockets=2))
    for name in ("koordlet-BE", "koordlet-pod", "BE"):
        world.host.mkdir(f"{ROOT}/{name}")
    counters = {"llc_occupancy": 4096, "mbm_total_bytes": 300, "mbm_local_bytes": 200}
    world.host.resctrl.entries["koordlet-BE"].counters.see(**counters)
    return world


def test_groups_of_classes_alone(world: World) -> None:
    samples = world.samples(world.rounds())
    found = {key: value for key, value in samples.items() if key[0].startswith("resctrl")}
    llc, traffic = RESCTRL_LLC.kind, RESCTRL_MB.kind
    assert found == {
        (llc, "0", "BE"): 4096,
        (llc, "1", "BE"): 4096,
        (traffic, "0", "BE", "mbm_total_bytes"): 300,
        (traffic, "1", "BE", "mbm_total_bytes"): 300,
        (traffic, "0", "BE", "mbm_local_bytes"): 200,
        (traffic, "1", "BE", "mbm_local_bytes"): 200,
    }


def test_what_the_hardware_cannot_tell_now_is_left_out(world: World) -> None:
    world.host.resctrl.entries["koordlet-BE"].monitored["mbm_local_bytes"] = -1
    found = monitored(world.host, f"{ROOT}/koordlet-BE")
    assert found == {
        (cache, name): value
        for cache in (0, 1)
        for name, value in (("llc_occupancy", 4096), ("mbm_total_bytes", 300))
    }


def test_damage_names_the_file(world: World) -> None:
    world.host.faults.short_read(f"{ROOT}/koordlet-BE/mon_data/mon_L3_00/llc_occupancy", 0)
    with pytest.raises(ParseError, match="llc_occupancy"):
        monitored(world.host, f"{ROOT}/koordlet-BE")


def test_without_resctrl_there_is_nothing_and_no_fault() -> None:
    world = World()
    world.rounds()
    health = world.health("resctrl")
    assert health.success and not health.samples and not health.skipped
