"""What programs cost, and where the kernel does not tell."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from koordlet.kernel.bpf import cost
from koordlet.kernel.bpf.cost import Cost, CostMeter
from koordlet.kernel.bpf.syscalls import RunTime

AS_THE_UNIT = ("setpriv", "--bounding-set", "-sys_admin")
LOOK = """
import time
from koordlet.kernel.linux import LinuxHost
block = LinuxHost().block_io()
block.meter.begin(time.monotonic())
time.sleep(0.1)
print(sorted(block.meter.end(time.monotonic())), block.meter.unknown)
block.close()
"""


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def enable() -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(cost, "enable_stats", enable)


@pytest.mark.usefixtures("refused")
def test_without_the_capability_the_costs_are_unknown_and_why_is_said() -> None:
    meter = CostMeter(lambda: {"wakeup": RunTime(0, 0)})
    meter.begin(1.0)
    assert meter.measuring
    assert meter.end(2.0) == {}
    assert not meter.measuring
    assert meter.unknown == "EPERM: needs CAP_SYS_ADMIN, or sysctl kernel.bpf_stats_enabled=1"


@pytest.mark.usefixtures("refused")
def test_without_the_capability_they_are_known_where_the_administrator_measures() -> None:
    readings = iter(({"wakeup": RunTime(0, 0)}, {"wakeup": RunTime(3_000, 20)}))
    meter = CostMeter(lambda: next(readings))
    meter.begin(1.0)
    assert meter.end(2.0) == {"wakeup": Cost(3e-6, 150.0, 20.0)}
    assert meter.unknown == ""


@pytest.mark.kernel
def test_a_daemon_without_the_capability_says_so() -> None:
    command = (*AS_THE_UNIT, sys.executable, "-c", LOOK)
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No such file" in found.stderr:
        pytest.skip(found.stderr.splitlines()[-1])
    assert found.stderr == ""
    assert found.stdout == "[] EPERM: needs CAP_SYS_ADMIN, or sysctl kernel.bpf_stats_enabled=1\n"
