"""Knobs of the machine in the whole daemon, and that they go back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.actuator.restore import Status
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.slo import NodeSLOSpec, SystemStrategy
from koordlet.qos.system_knobs import decide
from tests.actuator.world import World as Machine
from tests.daemon.world import World
from tests.qos.build import node, snapshot

MakeWorld = Callable[..., World]
FREE, SCALE = Resource.SYSCTL_MIN_FREE_KBYTES, Resource.SYSCTL_WATERMARK_SCALE_FACTOR
REAP = Resource.MEMCG_REAP_BACKGROUND
SLO = """
[slo.systemStrategy]
minFreeKbytesFactor = 100
watermarkScaleFactor = 150
memcgReapBackGround = 1
"""


def _values(world: World) -> tuple[object, ...]:
    return tuple(world.parts.knobs.read("", resource) for resource in (FREE, SCALE))


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_knobs_are_set_and_go_back(make_world: MakeWorld, layout: str) -> None:
    world = make_world(SLO, layout, anolis=True)
    world.start()
    world.run(1)
    kbytes = world.parts.memory_bytes // 1024 // 100
    assert _values(world) == (kbytes, 150)
    assert world.parts.knobs.read("", REAP) == 1
    world.host.write("/proc/sys/vm/watermark_scale_factor", b"20")
    world.run(1)
    assert _values(world) == (kbytes, 150)
    world.reload("[slo.systemStrategy]\nminFreeKbytesFactor = 200\n")
    world.run(1)
    assert _values(world) == (2 * kbytes, 20)
    world.reload(SLO + "[strategies.system-knobs]\nenable = false\n")
    world.run(1)
    assert _values(world) == (67584, 20)
    assert world.parts.knobs.read("", REAP) == 0
    assert world.views.status().journal.entries == 0


def test_what_this_kernel_lacks_is_told_once(make_world: MakeWorld) -> None:
    world = make_world(SLO)
    world.start()
    world.run(5)
    (told,) = [
        event.decision for event in world.parts.events.recent()
        if event.decision is not None and event.decision.resource == REAP
    ]  # fmt: skip
    assert told.result == "unsupported"
    assert "Anolis" in told.detail


@pytest.mark.kernel
def test_a_real_knob_is_set_and_goes_back(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    file = Path("/proc/sys/vm/watermark_scale_factor")
    before = int(file.read_text())
    machine = Machine(LinuxHost(), str(tmp_path))
    wanted = 12 if before != 12 else 11
    spec = NodeSLOSpec(system_strategy=SystemStrategy(watermark_scale_factor=wanted))
    plan = decide(snapshot(node(1), spec=spec), None).plan
    try:
        (outcome,) = machine.apply(plan)
        if outcome.result is Result.REFUSED:
            pytest.skip(outcome.text)
        assert int(file.read_text()) == wanted
        assert [item.status for item in machine.restore().items] == [Status.RESTORED]
        assert int(file.read_text()) == before
    finally:
        machine.close()
        if int(file.read_text()) != before:
            file.write_text(str(before))
