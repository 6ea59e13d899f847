"""Block I/O QoS in the whole daemon, on every layout, and that limits go back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.actuator.restore import Status
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application
from koordlet.kernel.block import read_block_devices
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.slo import IOCfg
from koordlet.qos.blkio.flat import FlatLimits
from koordlet.qos.blkio.strategy import decide
from koordlet.state.snapshot import KernelView
from tests.actuator.world import World as Machine
from tests.daemon.world import APPLICATIONS, World
from tests.qos.build import bare, snapshot
from tests.qos.test_blkio_qos import block, slo

MakeWorld = Callable[..., World]
READ, WEIGHT = Resource.BLKIO_READ_BPS, Resource.BLKIO_COST_WEIGHT
QOS = Resource.BLKIO_COST_QOS
BE = """
[slo.resourceQOSStrategy.beClass.blkioQOS]
enable = true
[[slo.resourceQOSStrategy.beClass.blkioQOS.blocks]]
name = "vda"
type = "device"
[slo.resourceQOSStrategy.beClass.blkioQOS.blocks.ioCfg]
readBPS = {0}
writeIOPS = 200
ioWeightPercent = 40
"""
ROOT = """
[slo.resourceQOSStrategy.cgroupRoot.blkioQOS]
enable = true
[[slo.resourceQOSStrategy.cgroupRoot.blkioQOS.blocks]]
name = "vda"
type = "device"
[slo.resourceQOSStrategy.cgroupRoot.blkioQOS.blocks.ioCfg]
readLatency = 4000
"""


def _values(world: World) -> dict[Resource, object]:
    wanted = (READ, Resource.BLKIO_WRITE_IOPS, WEIGHT)
    return {r: world.value("batch", r) for r in wanted} | {QOS: world.value("", QOS)}


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_best_effort_gets_its_share_and_gives_it_back(make_world: MakeWorld, layout: str) -> None:
    world = make_world(BE.format(1000) + ROOT + APPLICATIONS, layout, anolis=True)
    world.application("batch", 1.0)
    world.start()
    world.run(1)
    assert _values(world)[READ] == "254:0 1000"
    assert _values(world)[Resource.BLKIO_WRITE_IOPS] == "254:0 200"
    assert "254:0 enable=1 ctrl=user rpct=95.00 rlat=4000" in str(_values(world)[QOS])
    weight = world.host.read(world.parts.cgroups.path("batch", WEIGHT))
    assert b"254:0 40" in weight or layout != "v2"
    world.reload(BE.format(3000) + ROOT + APPLICATIONS)
    world.run(1)
    assert _values(world)[READ] == "254:0 3000"
    world.reload(BE.format(3000) + APPLICATIONS + "[strategies.blkio-qos]\nenable = false\n")
    world.run(1)
    assert not any(_values(world).values())
    assert world.views.status().journal.entries == 0


def test_a_stock_v1_kernel_limits_and_says_that_it_has_no_weights(make_world: MakeWorld) -> None:
    world = make_world(BE.format(1000) + APPLICATIONS, "v1")
    world.application("batch", 1.0)
    world.start()
    world.run(3)
    assert world.value("batch", READ) == "254:0 1000"
    (told,) = [
        event.decision for event in world.parts.events.recent()
        if event.decision is not None and event.decision.resource == WEIGHT
    ]  # fmt: skip
    assert (told.result, "Anolis" in told.detail) == ("unsupported", True)


@pytest.mark.kernel
def test_a_real_limit_is_set_also_inside_and_goes_back(tmp_path: Path) -> None:
    """Cgroup v1 does not pass it on to those inside."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    host = LinuxHost()
    devices = read_block_devices(host)
    disks = sorted(name for name in devices.disks if not name.startswith(("loop", "ram", "zram")))
    machine = Machine(host, str(tmp_path))
    if "blkio" not in machine.cgroups.layout.v1 or not disks:
        pytest.skip("needs the v1 blkio controller and a disk")
    cgroup = f"koordlet-test-{os.getpid()}-blkio"
    layout = machine.cgroups.layout
    directory = Path(layout.v1["blkio"]) / cgroup
    made = [Path(root) / cgroup for root in {layout.v1["blkio"], layout.reference_root}]
    for each in made:
        (each / "inside").mkdir(parents=True)
    try:
        found = snapshot(
            bare(1, blocks=devices, io_limits_are_flat=True),
            apps=[Application("batch", cgroup, QoSClass.BE)],
            spec=slo("be_class", True, block(disks[0], io=IOCfg(read_bps=1 << 20))),
            in_force=KernelView(machine.knobs, machine.actuator.original),
        )
        outcomes = machine.apply(decide(found, FlatLimits()).plan)
        assert [outcome.result for outcome in outcomes] == [Result.WRITTEN] * 2
        number = devices.disks[disks[0]][0]
        files = [
            each / "blkio.throttle.read_bps_device" for each in (directory, directory / "inside")
        ]
        for file in files:
            assert file.read_text().split() == [number, str(1 << 20)]
        assert [item.status for item in machine.restore().items] == [Status.RESTORED] * 2
        assert [file.read_text() for file in files] == ["", ""]
    finally:
        machine.close()
        for each in made:
            (each / "inside").rmdir()
            each.rmdir()
