"""What may end or freeze work: every feature with its threshold and what switched it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.config.load import load
from koordlet.views.armed import arms
from tests.daemon.world import World, write_config

ON = "[slo.resourceUsedThresholdWithBE]\nenable = true\n"
ALL = """
cpuEvictBESatisfactionLowerPercent = 40
cpuEvictBESatisfactionUpperPercent = 60
cpuEvictThresholdPercent = 80
evictEnabledPriorityThreshold = 5999
allocatableEvictPriorityThreshold = 5999
cpuAllocatableEvictThresholdPercent = 90
cpuAllocatableEvictLowerPercent = 80
memoryAllocatableEvictThresholdPercent = 95
memoryAllocatableEvictLowerPercent = 80
"""
APPLICATIONS = """
[[applications]]
name = "job"
cgroup = "job"
qos = "BE"
evict = "stop"
[[applications]]
name = "train"
cgroup = "train"
qos = "BE"
evict = "freeze"
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
"""


def names(directory: Path, body: str) -> list[str]:
    return [each.name for each in arms(load(str(write_config(directory, body))))]


def test_one_switch_arms_memory_eviction_and_that_is_said(tmp_path: Path) -> None:
    file = write_config(tmp_path, ON)
    (armed,) = arms(load(str(file)))
    assert (armed.owner, armed.name) == ("memory-evict", "BEMemoryEvict")
    assert armed.does == "ends best-effort pods"
    assert armed.when == "memory in use reaches 70 % of the node"
    line = file.read_text().splitlines().index("enable = true") + 1
    assert armed.by == (
        f"slo.resourceUsedThresholdWithBE.enable ({file.name}:{line}), "
        "memoryEvictThresholdPercent (default)"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", []),
        (ON + "[strategies.memory-evict]\nenable = false\n", []),
        (ON + "cpuEvictThresholdPercent = 80\n", ["BEMemoryEvict"]),  # without a priority: refused
        (
            ON + ALL,
            ["BECPUEvict", "CPUEvict", "BEMemoryEvict", "MemoryEvict"],
        ),  # nobody says what the node offers
        (
            ON + ALL + '[node.allocatable]\n"kubernetes.io/batch-cpu" = 8000\n',
            [
                "BECPUEvict",
                "CPUAllocatableEvict",
                "CPUEvict",
                "BEMemoryEvict",
                "MemoryAllocatableEvict",
                "MemoryEvict",
            ],
        ),
        (ON + APPLICATIONS, ["BEMemoryEvict", "application job"]),
        (
            ON + ALL + APPLICATIONS + "[strategies.memory-evict]\nenable = false\n",
            ["BECPUEvict", "CPUEvict", "application job", "application train"],
        ),
        (APPLICATIONS, []),
    ],
)
def test_what_is_armed(tmp_path: Path, body: str, expected: list[str]) -> None:
    assert names(tmp_path, body) == expected


def test_thresholds_and_victims_are_named(tmp_path: Path) -> None:
    body = ON + ALL + APPLICATIONS + '[node.allocatable]\n"kubernetes.io/batch-cpu" = 8000\n'
    found = {each.name: each for each in arms(load(str(write_config(tmp_path, body))))}
    assert "40 %" in found["BECPUEvict"].when
    assert found["CPUEvict"].when == "CPU in use reaches 80 % of the node"
    assert "95 %" in found["MemoryAllocatableEvict"].when
    assert "priority 5999 or less" in found["CPUEvict"].does
    job, train = found["application job"], found["application train"]
    assert (job.does, train.does) == ("ends it", "freezes it")
    assert job.when == "BECPUEvict or CPUEvict or BEMemoryEvict or MemoryEvict chooses it"
    assert train.when == "CPUEvict chooses it"
    assert job.by.startswith('evict = "stop" (koordlet.toml:')


def test_who_is_told_to_switch_it_on_is_told_what_that_arms(tmp_path: Path) -> None:
    world = World(tmp_path, "")
    world.start()
    rows = {row.name: row for row in world.views.strategies("")().strategies}
    assert rows["cpu-suppress"].remedy == (
        "set slo.resourceUsedThresholdWithBE.enable = true; that arms memory eviction too, at 70 % "
        "of memory in use, unless strategies.memory-evict.enable = false"
    )
    assert "arms" not in rows["memory-evict"].remedy
    assert "arms" not in rows["cpu-burst"].remedy
    world.reload("[strategies.memory-evict]\nenable = false\n")
    (row,) = world.views.strategies("cpu-suppress")().strategies
    assert row.remedy == "set slo.resourceUsedThresholdWithBE.enable = true"
    world.stop()


def test_status_has_it(tmp_path: Path) -> None:
    world = World(tmp_path, ON)
    world.start()
    assert [each.name for each in world.views.status().armed] == ["BEMemoryEvict"]
    world.reload("")
    assert world.views.status().armed == ()
    world.stop()
