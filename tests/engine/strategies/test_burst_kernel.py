"""CPU burst on the real kernel: the strategy decides, the actuator writes, a service feels it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import cpu_stat
from koordlet.protocol.qos import QoSClass
from koordlet.qos.cpu_burst.strategy import BurstState, decide
from koordlet.state.snapshot import KernelView
from tests.actuator.world import World
from tests.controllers import passed_on
from tests.qos.build import metrics, node, snapshot
from tests.qos.cpu_burst.test_strategy import burst_slo

pytestmark = [pytest.mark.kernel, pytest.mark.alone]

_QUOTA_US = 50_000
_WATCHED_S = 4.0
# The machine may be busy: the service runs when it wants to, so that its quota alone stops it.
_SHARES = 100_000
_number = itertools.count()
# 70 ms of CPU every 320 ms: half of what the quota gives, but more than it gives in one period. An
# emulated CPU adds tens of milliseconds at times, and still stays below quota and budget.
_BURSTY = """
import time
print(flush=True)
while True:
    end = time.thread_time() + 0.07
    while time.thread_time() < end:
        pass
    time.sleep(0.25)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    host = LinuxHost()
    made = World(host, str(tmp_path))
    with passed_on(host, made.cgroups.layout.v2):
        yield made
    made.close()


@pytest.fixture
def service(world: World) -> Iterator[str]:
    """A bursty process in a cgroup with a quota."""
    cgroup = f"koordlet-test-{os.getpid()}-burst-{next(_number)}"
    try:
        directory = Path(world.cgroups.directory(cgroup, Resource.CPU_QUOTA_US))
    except Unsupported as error:
        pytest.skip(str(error))
    directory.mkdir()
    process = None
    try:
        world.cgroups.write(cgroup, Resource.CPU_SHARES, _SHARES)
        world.cgroups.write(cgroup, Resource.CPU_QUOTA_US, _QUOTA_US)
        if not Path(world.path(cgroup, Resource.CPU_BURST_US)).exists():
            pytest.skip("the kernel has no burst budgets (before 5.14)")
        process = subprocess.Popen([sys.executable, "-c", _BURSTY], stdout=subprocess.PIPE)
        assert process.stdout is not None
        (directory / "cgroup.procs").write_text(str(process.pid))
        process.stdout.readline()
        yield cgroup
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        directory.rmdir()


def _throttled_periods(world: World, cgroup: str) -> int:
    """How many periods throttled the service while it is watched."""

    def now() -> int:
        data = world.cgroups.read_raw(cgroup, Resource.CPU_STAT)
        return cpu_stat(data, world.path(cgroup, Resource.CPU_STAT)).nr_throttled

    before = now()
    time.sleep(_WATCHED_S)
    return now() - before


def _decide(world: World, cgroup: str, policy: str) -> list[Result]:
    shop = Application("shop", cgroup, QoSClass.LS)
    found = snapshot(
        node(os.cpu_count() or 1),
        apps=[shop],
        spec=burst_slo(policy),
        metrics_=metrics(0.1),
        in_force=KernelView(world.knobs, world.actuator.original),
    )
    return [outcome.result for outcome in world.apply(decide(found, BurstState()).plan)]


def test_a_bursty_service_is_throttled_less_with_a_budget(world: World, service: str) -> None:
    without = _throttled_periods(world, service)
    assert _decide(world, service, "auto") == [Result.WRITTEN]
    assert world.value(service, Resource.CPU_BURST_US) == _QUOTA_US
    budgeted = _throttled_periods(world, service)
    assert without >= 4
    assert budgeted <= without / 2, (without, budgeted)
    assert _decide(world, service, "none") == [Result.RESTORED]
    assert world.value(service, Resource.CPU_BURST_US) == 0
