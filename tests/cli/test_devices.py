"""``koordlet devices`` where something is amiss, or nothing is there; the rest is in the golden
files."""

from __future__ import annotations

import json

import msgspec
import pytest

from koordlet.admin.devices import DevicesView, DeviceView
from koordlet.cli.main import Exit, main
from koordlet.cli.show.devices import lines
from koordlet.decision.snapshot import Capability
from tests.admin.harness import Served
from tests.admin.samples import DEVICES, START


@pytest.mark.usefixtures("utc")
def test_a_broken_device_is_explained() -> None:
    broken = DeviceView(
        type="gpu",
        minor=3,
        id="GPU-x",
        name="H100",
        health="unhealthy",
        why="Xid79: the driver reported Xid 79",
        since=START,
    )
    shown = lines(DevicesView(devices=(broken,)))
    assert shown[-1] == ("  gpu 3: Xid79: the driver reported Xid 79, since 2027-01-15 08:00:00")


def test_without_any_it_says_what_was_looked_for() -> None:
    missing = (
        Capability("nvml", False, "no NVIDIA driver"),
        Capability("rdma", False, "no RDMA device"),
    )
    assert lines(DevicesView(capabilities=missing)) == [
        "no devices",
        "",
        "Not here:",
        "  nvml: no NVIDIA driver",
        "  rdma: no RDMA device",
    ]


def test_what_others_write_steers_no_terminal() -> None:
    evil = "\x1b[2J"
    device = DeviceView(type="xpu", minor=0, id=evil, name=evil, health="unhealthy", why=evil)
    shown = lines(DevicesView(devices=(device,), refused=(evil,)))
    assert not any("\x1b" in line for line in shown)


def test_the_exit_code_tells_of_a_broken_device(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["devices", "--socket", served.path]) == Exit.OK
    capsys.readouterr()
    first, *others = DEVICES.devices
    broken = msgspec.structs.replace(first, health="unhealthy", why="Xid79")
    view = msgspec.structs.replace(DEVICES, devices=(broken, *others))
    monkeypatch.setattr(served.daemon, "devices", lambda: view)
    assert main(["devices", "-o", "json", "--socket", served.path]) == Exit.BAD
    assert json.loads(capsys.readouterr().out)["devices"][0]["why"] == "Xid79"
