"""Cycles per instruction against a truth: in the guest ``arm-icount`` an instruction takes 4 ns and
a cycle 1 ns, so CPI is 4, whatever runs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import cpu_usage_ns
from koordlet.kernel.perf.counts import Total
from koordlet.kernel.perf.groups import count_cgroups, open_pair
from koordlet.kernel.perf.pmu import try_pmu

CPI = 4.0
CPUS = (0, 1)
GUEST = os.environ.get("KOORDLET_GUEST", "")
WORK = {
    "spins": "while True: pass",
    "half-busy": (
        "import time\n"
        "while True:\n"
        " end = time.monotonic() + 0.01\n"
        " while time.monotonic() < end: pass\n"
        " time.sleep(0.01)"
    ),
    "copies": "a = bytearray(8 << 20)\nwhile True: bytes(a)",
    "idles": "import time; time.sleep(1e6)",
}
pytestmark = pytest.mark.kernel
counting = pytest.mark.skipif(GUEST != "arm-icount", reason="for the guest arm-icount")


@pytest.fixture
def host() -> LinuxHost:
    return LinuxHost()


@pytest.fixture
def parent() -> Iterator[str]:
    """A cgroup for those of the test; the guests have cgroup v2 alone."""
    path = Path(f"/sys/fs/cgroup/koordlet-test-{os.getpid()}-pmu")
    path.mkdir()
    try:
        yield str(path)
    finally:
        for child in path.iterdir():
            if child.is_dir():
                child.rmdir()
        path.rmdir()


@contextmanager
def working(directory: str, name: str) -> Iterator[str]:
    """A cgroup below ``directory`` with a process that does ``WORK[name]``."""
    path = Path(directory, name)
    path.mkdir()
    process = subprocess.Popen([sys.executable, "-S", "-c", WORK[name]])
    try:
        (path / "cgroup.procs").write_text(str(process.pid))
        yield str(path)
    finally:
        process.kill()
        process.wait()


def used_ns(host: LinuxHost, path: str) -> int:
    return cpu_usage_ns(host.read(f"{path}/cpu.stat"), path)


@counting
def test_cycles_per_instruction_of_four_cgroups(host: LinuxHost, parent: str) -> None:
    used: dict[str, int] = {}
    with ExitStack() as stack:
        paths = {name: stack.enter_context(working(parent, name)) for name in WORK}
        time.sleep(0.5)

        def wait() -> None:
            used.update({name: -used_ns(host, path) for name, path in paths.items()})
            time.sleep(2.0)
            for name, path in paths.items():
                used[name] += used_ns(host, path)

        found = count_cgroups(host.perf(), list(paths.values()), CPUS, wait)
    for name, path in paths.items():
        total = found[path]
        assert isinstance(total, Total), total
        if name == "idles":
            assert total == Total(0, 0, 0, 0)
            continue
        assert total.cycles / total.instructions == pytest.approx(CPI, rel=0.01)
        assert total.cycles == pytest.approx(used[name], rel=0.1)
        assert total.running_ns == total.enabled_ns


@counting
def test_eight_groups_on_seven_counters_take_turns(host: LinuxHost, parent: str) -> None:
    perf = host.perf()
    with ExitStack() as stack:
        path = stack.enter_context(working(parent, "spins"))
        directory = perf.directory(path)
        stack.callback(perf.close, directory)
        for cpu in CPUS:
            for _ in range(7):
                leader, member = open_pair(perf, cpu, directory)
                stack.callback(perf.close, leader)
                stack.callback(perf.close, member)
                perf.enable(leader)
        before_ns = used_ns(host, path)
        total = count_cgroups(perf, [path], CPUS, lambda: time.sleep(3.0))[path]
        used = used_ns(host, path) - before_ns
    assert isinstance(total, Total), total
    assert 0 < total.running_ns < 0.6 * total.enabled_ns
    assert total.cycles / total.instructions == pytest.approx(CPI, rel=0.01)
    assert total.cycles == pytest.approx(used, rel=0.1)


@pytest.mark.skipif(GUEST != "arm-generic", reason="for the guest arm-generic")
def test_half_a_pmu_is_told_and_no_zero(host: LinuxHost, parent: str) -> None:
    found = try_pmu(host.perf(), 0)
    assert found.counts == "cycles"
    assert found.error is not None and found.error.errno == errno.ENOENT
    total = count_cgroups(host.perf(), [parent], CPUS, lambda: None)[parent]
    assert isinstance(total, OSError) and total.filename == "perf_event_open(instructions, CPU 0)"
