"""Cycles per instruction against a truth: in the guest ``arm-icount`` an instruction takes 4 ns and
a cycle 1 ns, so CPI is 4, whatever runs."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.cpi.collector import CpiCollector
from koordlet.collectors.cpi.part import CpiOptions
from koordlet.collectors.cpi.sources import CannotCountError, open_source
from koordlet.collectors.runner import Runner
from koordlet.decision.metrics import CONTAINER_CYCLES_PER_INSTRUCTION
from koordlet.decision.snapshot import Container, Pod
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf import objects
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import cpu_usage_ns
from koordlet.kernel.perf.counts import Total, total
from koordlet.kernel.perf.events import open_pair
from koordlet.kernel.perf.groups import CgroupCounters
from koordlet.kernel.perf.pmu import try_pmu
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import KubeQoS
from koordlet.state.node import NodeOptions, node_of
from koordlet.tsdb.store import Store

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
BUSY = ("spins", "half-busy", "copies")
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
    """A cgroup below ``directory`` with a process that does ``WORK[name]``: its interpreter, which
    takes a while on an emulated CPU, has started."""
    path = Path(directory, name)
    path.mkdir()
    program = f"print(flush=True)\n{WORK[name]}"
    process = subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
    try:
        (path / "cgroup.procs").write_text(str(process.pid))
        assert process.stdout is not None
        process.stdout.readline()
        yield str(path)
    finally:
        process.kill()
        process.communicate()


def used_ns(host: LinuxHost, path: str) -> int:
    return cpu_usage_ns(host.read(f"{path}/cpu.stat"), path)


def by_descriptors(
    host: LinuxHost, paths: list[str], seconds: float
) -> tuple[dict[str, Total], dict[str, int]]:
    """What was counted, and the CPU time in nanoseconds."""
    counters = CgroupCounters(host.perf())
    assert counters.begin(paths, CPUS, no_pause) == {}
    used = let_run(host, paths, seconds)
    return {path: total(counts) for path, counts in counters.end(no_pause).items()}, used


def by_bpf(
    host: LinuxHost, paths: list[str], seconds: float
) -> tuple[dict[str, Total], dict[str, int]]:
    ids = {host.inode(path): path for path in paths}
    counters = host.cpi_counters(by_cpu_controller=False)
    try:
        counters.begin(list(ids), CPUS, no_pause)
        used = let_run(host, paths, seconds)
        found = counters.end(no_pause)
    finally:
        counters.close()
    return {ids[cgroup]: total(counts) for cgroup, counts in found.items()}, used


def let_run(host: LinuxHost, paths: list[str], seconds: float) -> dict[str, int]:
    used = {path: -used_ns(host, path) for path in paths}
    time.sleep(seconds)
    return {path: ns + used_ns(host, path) for path, ns in used.items()}


@counting
@pytest.mark.parametrize("counted_by", [by_descriptors, by_bpf])
def test_cycles_per_instruction_of_four_cgroups(
    host: LinuxHost,
    parent: str,
    counted_by: Callable[..., tuple[dict[str, Total], dict[str, int]]],
) -> None:
    with ExitStack() as stack:
        paths = {name: stack.enter_context(working(parent, name)) for name in WORK}
        time.sleep(0.5)
        found, used = counted_by(host, list(paths.values()), 2.0)
    assert found.pop(paths["idles"]) == Total(0, 0, 0, 0)
    assert len(found) == len(BUSY)
    for path, counted in found.items():
        assert counted.cycles / counted.instructions == pytest.approx(CPI, rel=0.01)
        assert counted.cycles == pytest.approx(used[path], rel=0.1)
        assert counted.running_ns == counted.enabled_ns


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
        found, used = by_descriptors(host, [path], 3.0)
    assert 0 < found[path].running_ns < 0.6 * found[path].enabled_ns
    assert found[path].cycles / found[path].instructions == pytest.approx(CPI, rel=0.01)
    assert found[path].cycles == pytest.approx(used[path], rel=0.1)


@counting
@pytest.mark.parametrize("library", [objects.LIBRARY, "libbpf.so.none"])
def test_the_collector_beside_its_loop(
    host: LinuxHost, parent: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows in the background, by eBPF and without it, until a sample of each busy container is
    there."""
    monkeypatch.setattr(objects, "LIBRARY", library)
    objects.library.cache_clear()
    layout, store = detect(host), Store(None)
    below = parent.removeprefix("/sys/fs/cgroup/")
    options = CpiOptions(interval_seconds=1.5, window_seconds=1.0)
    collector = CpiCollector(host, layout, store, options, "/sys")
    runner = Runner([collector], store, host, BudgetOptions(cores=math.inf))
    found: dict[str, float] = {}
    with ExitStack() as stack:
        stack.callback(objects.library.cache_clear)
        stack.callback(runner.close)
        for name in BUSY:
            stack.enter_context(working(parent, name))
        containers = tuple(Container(name, f"{below}/{name}") for name in BUSY)
        pod = Pod("pod", below, KubeQoS.BURSTABLE, containers=containers)
        node = node_of(NodeOptions("n"), read_topology(host), 1 << 30, {}, Kubepods("kubepods"))
        deadline = time.monotonic() + 60
        while len(found) < len(BUSY) and time.monotonic() < deadline:
            time.sleep(0.5)
            round_ = runner.run(node, (pod,), ())
            for series, value in zip(round_.ids, round_.values, strict=True):
                kind, labels = store.describe(series)
                if kind == CONTAINER_CYCLES_PER_INSTRUCTION.kind:
                    found[dict(labels)["container_id"]] = value
        (health,) = runner.health()
        programs = set(collector.costs)
    assert found == pytest.approx(dict.fromkeys(BUSY, CPI), rel=0.01)
    assert health.error == "" and health.skipped == 0
    (capability,) = collector.capabilities
    assert capability.supported
    assert ("no eBPF: libbpf.so.none" in capability.why) == (library != "libbpf.so.1")
    assert ("on_change" in programs) == (library == "libbpf.so.1")


@pytest.mark.skipif(GUEST != "arm-generic", reason="for the guest arm-generic")
def test_half_a_pmu_is_told_and_no_zero(host: LinuxHost, parent: str) -> None:
    found = try_pmu(host.perf(), 0)
    assert found.counts == "cycles"
    assert found.error is not None and found.error.errno == errno.ENOENT
    refused = CgroupCounters(host.perf()).begin([parent], CPUS, no_pause)
    assert refused[parent].filename == "perf_event_open(instructions, CPU 0)"
    with pytest.raises(CannotCountError, match="cycles alone are counted"):
        open_source(host, detect(host), 1024, "/sys")
