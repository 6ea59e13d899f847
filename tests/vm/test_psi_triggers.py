"""Pressure triggers with windows below 2 s, which take CAP_SYS_RESOURCE: armed, and woken by real
pressure. Elsewhere koordlet samples instead, and these skip with the kernel's reason."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Wake, WakeKind
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import QoSClass
from koordlet.state.alarms import Alarms, Mechanism

pytestmark = pytest.mark.kernel

_CAP_SYS_RESOURCE = 1 << 24
_TIMEOUT_S = 60.0
"""Only to end a test that hangs: a guest is slow, and its host may be busy."""
_number = itertools.count()
_BURN = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while True:
    pass
"""


@pytest.fixture
def host() -> LinuxHost:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return LinuxHost()


@pytest.fixture
def cgroups(host: LinuxHost) -> Cgroups:
    return Cgroups(host, detect(host))


@pytest.fixture
def group(host: LinuxHost, cgroups: Cgroups) -> Iterator[str]:
    """A new cgroup in every hierarchy."""
    name = f"koordlet-test-{os.getpid()}-psi-{next(_number)}"
    roots = [Path(root) for root in cgroups.layout.roots]
    try:
        for root in roots:
            (root / name).mkdir()
        yield name
    finally:
        for root in roots:
            if (root / name).exists():
                (root / name).rmdir()


@pytest.fixture
def pressure(cgroups: Cgroups, group: str) -> str:
    try:
        return cgroups.path(group, Resource.CPU_PRESSURE)
    except Unsupported as missing:
        pytest.skip(str(missing))


@contextmanager
def burners(directory: str) -> Iterator[None]:
    """Two processes of the cgroup on one CPU: half of the time one of them has to wait."""
    running = []
    try:
        for _ in range(2):
            burner = subprocess.Popen([sys.executable, "-S", "-c", _BURN], stdout=subprocess.PIPE)
            running.append(burner)
            assert burner.stdout is not None
            burner.stdout.readline()
            Path(directory, "cgroup.procs").write_text(str(burner.pid))
        yield
    finally:
        for burner in running:
            burner.kill()
            burner.communicate()


def may_arm_short_windows() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _CAP_SYS_RESOURCE)
    return False


def skip_unless_allowed(window_us: int, refusal: OSError) -> None:
    name = errno.errorcode.get(refusal.errno or 0, str(refusal))
    if not may_arm_short_windows():
        pytest.skip(f"the kernel refuses a window of {window_us} us ({name}): no CAP_SYS_RESOURCE")
    if window_us < 500_000 and refusal.errno == errno.EINVAL:
        pytest.skip(f"the kernel refuses a window of {window_us} us (EINVAL): before Linux 6.4")
    raise refusal


@pytest.mark.parametrize("window_us", [2_000_000, 500_000, 100_000])
def test_a_trigger_is_armed_and_wakes_on_pressure(
    host: LinuxHost, pressure: str, window_us: int
) -> None:
    async def wait() -> float:
        fired = asyncio.Event()
        try:
            watch = host.psi_trigger(pressure, f"some {window_us // 10} {window_us}", fired.set)
        except OSError as refusal:
            skip_unless_allowed(window_us, refusal)
        try:
            await asyncio.sleep(window_us / 1e6)
            assert not fired.is_set(), "it fired without pressure"
            with burners(os.path.dirname(pressure)):
                began = time.monotonic()
                await asyncio.wait_for(fired.wait(), _TIMEOUT_S)
                return time.monotonic() - began
        finally:
            watch.close()

    print(f"window {window_us / 1e6:g} s: woken {asyncio.run(wait()):.3f} s after pressure began")


def test_alarms_arm_half_a_second_and_wake(
    host: LinuxHost, cgroups: Cgroups, group: str, pressure: str
) -> None:
    """What the daemon does for a latency-sensitive application."""
    shop = Application("shop", group, QoSClass.LS)

    async def wait() -> tuple[Wake, float]:
        woken: asyncio.Queue[Wake] = asyncio.Queue()
        alarms = Alarms(host, cgroups, woken.put_nowait)
        try:
            alarms.watch((), (shop,))
            armed = {each.source: each for each in alarms.describe() if each.kind is WakeKind.PSI}
            if armed[group].mechanism is Mechanism.SAMPLED and not may_arm_short_windows():
                pytest.skip(f"sampled here: {armed[group].reason}")
            assert armed[group].mechanism is Mechanism.TRIGGER, armed[group].reason
            with burners(os.path.dirname(pressure)):
                began = time.monotonic()
                while True:
                    wake = await asyncio.wait_for(woken.get(), _TIMEOUT_S)
                    if wake.source == group:
                        return wake, time.monotonic() - began
        finally:
            alarms.close()

    wake, took_s = asyncio.run(wait())
    print(f"alarm {took_s:.3f} s after pressure began: {wake}")
    assert wake.kind is WakeKind.PSI
