"""The collector of accelerators that files describe."""

from __future__ import annotations

import errno
import json
from typing import Any

from koordlet_fakefs.devices import Devices

from koordlet.collectors.devices.xpu import COLLECTOR, DIRECTORY, XpuCollector, XpuOptions
from tests.collectors.devices.rounds import begin, collector
from tests.collectors.world import World


def test_their_health_is_a_series_and_bad_files_are_named() -> None:
    world = World()
    begin(world)
    health: Any = world.health("xpu")
    assert health.success and health.samples == 0
    xpu = collector(world, "xpu")
    assert isinstance(xpu, XpuCollector)
    assert [(each.supported, each.why) for each in xpu.capabilities] == [
        (False, f"no accelerator files: {DIRECTORY} does not exist")
    ]
    files = Devices(world.host.root).files(DIRECTORY)
    devices = [
        {"uuid": "u-1", "minor": "0", "status": {"healthy": True}},
        {"uuid": "u-2", "minor": "1", "status": {"healthy": False}},
        {"uuid": "u-3", "minor": "2"},
    ]
    files.put("npu.json", json.dumps(devices).encode())
    files.put("other.json", b"{")
    found = world.samples(begin(world))
    assert {key: value for key, value in found.items() if key[-1] == "xpu"} == {
        ("node_device_healthy", "u-1", "0", "xpu"): 1.0,
        ("node_device_healthy", "u-2", "1", "xpu"): 0.0,
    }
    health = world.health("xpu")
    assert (health.success, health.skipped) == (True, 1)
    assert f"{DIRECTORY}/other.json" in health.skipped_example
    (capability,) = xpu.capabilities
    assert capability.supported
    about, _, cost = capability.why.partition("; ")
    assert about == f"3 accelerators are described in {DIRECTORY}"
    assert cost.startswith("a reading takes ") and cost.endswith(" ms of CPU")
    assert xpu.inventory is not None
    assert [each.uuid for each in xpu.inventory.xpus] == ["u-1", "u-2", "u-3"]
    assert len(xpu.inventory.refused) == 1
    files.drop("npu.json")
    assert not any(key[-1] == "xpu" for key in world.samples(begin(world)))
    world.host.faults.add(DIRECTORY, op="listdir", errno=errno.EACCES)
    begin(world)
    assert [(each.supported, each.why) for each in xpu.capabilities] == [
        (False, f"{DIRECTORY}: Permission denied")
    ]


def test_the_directory_must_be_an_absolute_path() -> None:
    assert list(COLLECTOR.problems()) == []
    (problem,) = COLLECTOR.with_options(XpuOptions(directory="xpus")).problems()
    assert problem.path == "directory"
