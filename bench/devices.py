"""What readings of devices cost koordlet, without the part of drivers and cards.

GPUs by the stand-in of NVIDIA's library, which does next to nothing itself, with real processes;
RDMA devices and files of accelerators by ordinary files in the place of the kernel's. All times are
CPU times of this process, so that other work on the machine does not count.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figures import Figure, NotMeasuredError, quantile
from koordlet.collectors.base import Round
from koordlet.collectors.devices.gpu_use import inventory_of, samples
from koordlet.collectors.devices.owners import Owner
from koordlet.collectors.devices.rdma_rates import read as read_rdma
from koordlet.collectors.devices.series import Series
from koordlet.decision.devices import UserKind
from koordlet.decision.snapshot import Node, Topology
from koordlet.kernel.devices.gpu_health import GpuHealth
from koordlet.kernel.devices.gpus import GpuReader
from koordlet.kernel.devices.nvml import KINDS, Nvml
from koordlet.kernel.devices.xpu import XpuReader
from koordlet.kernel.linux import LinuxHost
from koordlet.tsdb.store import Store

SOURCE = Path(__file__).parents[1] / "tests/kernel/devices/fake_nvml.c"
SONAME = "libnvidia-ml.so.1"
_MIB = 1 << 20
_RDMA_COUNTERS = 50
_LOAD = """
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
import ctypes, sys
from koordlet.cli.process import lean
with lean.unavailable(*lean.UNUSED):
    from koordlet.cli.process import run
from koordlet.kernel.linux import LinuxHost
before = rss()
from koordlet.kernel.devices.gpus import GpuReader
from koordlet.kernel.devices.nvml import Nvml
import koordlet.collectors.devices.gpu_use, koordlet.kernel.devices.xid_events
GpuReader(Nvml(ctypes.CDLL(sys.argv[1])), LinuxHost()).read()
print(rss() - before)
"""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    gpus, processes, times = (2, 2, 3) if smoke else (8, 16, 50)
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-devices-") as name:
        directory = Path(name)
        say(f"{gpus} GPUs with {processes} processes each")
        figures = _gpus(directory, gpus, processes, times)
        say("RDMA devices and accelerators")
        return [*figures, _rdma(directory, gpus, times), *_xpus(directory, times)]


def _gpus(directory: Path, gpus: int, each: int, times: int) -> list[Figure]:
    library = _library(directory)
    with _sleepers(gpus * each) as pids:
        (directory / "world").write_text("".join(_world(gpus, each, pids)))
        os.environ["FAKE_NVML"] = str(directory / "world")
        nvml, host = Nvml(ctypes.CDLL(str(library))), LinuxHost()
        reader = GpuReader(nvml, host)
        found = reader.read()
        seen = sum(len(gpu.processes) for gpu in found.gpus)
        if seen != gpus * each or found.failed:
            raise RuntimeError(f"{seen} processes on {len(found.gpus)} GPUs; {found.failed}")
        cgroups = sorted({path for gpu in found.gpus for p in gpu.processes for path in p.cgroups})
        owners = {path: Owner(UserKind.POD, path, path) for path in cgroups}
        store, health = Store(None), GpuHealth()
        series, node = Series(store), Node("bench", Topology(()), 0, 0)

        def read() -> None:
            reader._read_us.clear()  # the stand-in has no samples but the first
            reader.read()

        def take() -> None:
            round_ = Round(store, 1_790_000_000_000, 0.0, node, (), ())
            series.write(round_, samples(inventory_of(found, owners, health)))

        figures = [
            Figure("GPUs: a reading, in its thread", _median_ms(read, times), "ms CPU"),
            Figure("of it calls of the library", _median_ms(lambda: _calls(nvml), times), "ms CPU"),
            Figure("taking it, on the event loop", _median_ms(take, times), "ms CPU"),
        ]
        figures += _by_theirs(times)
        command = [sys.executable, "-c", _LOAD, str(library)]
        done = subprocess.run(command, capture_output=True, check=True)
        reader.close()
    return [*figures, Figure("memory that GPUs take in the daemon", int(done.stdout) / _MIB, "MiB")]


def _library(directory: Path) -> Path:
    """The stand-in reads what it says once, not at each call as in tests."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NotMeasuredError("needs a C compiler (apt-get install gcc)")
    library = directory / SONAME
    options = ("-shared", "-fPIC", "-O1", "-DREAD_ONCE", f"-Wl,-soname,{SONAME}", "-pthread")
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCE)], check=True)
    return library


def _world(gpus: int, each: int, pids: list[int]) -> Iterator[str]:
    now_us = int(time.time() * 1e6)
    for gpu in range(gpus):
        yield f"gpu GPU-{gpu:08x} {gpu} 00000000:{gpu + 16:02X}:00.0 81920 600 NVIDIA_H100\n"
        for pid in pids[gpu * each : (gpu + 1) * each]:
            yield f"proc {gpu} {pid} 1000 compute\nsample {gpu} {pid} {now_us} 5\n"


@contextlib.contextmanager
def _sleepers(count: int) -> Iterator[list[int]]:
    """Real processes, so that the kernel has cgroups of them."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()


def _calls(nvml: Nvml) -> None:
    """Those of one reading."""
    nvml.driver_version()
    for index in range(nvml.count()):
        device = nvml.handle(index)
        for ask in (nvml.uuid, nvml.name, nvml.minor, nvml.bus_id, nvml.memory, nvml.is_divided):
            ask(device)
        nvml.samples(device, 0)
        for kind in KINDS:
            nvml.processes(device, kind)


def _by_theirs(times: int) -> list[Figure]:
    """The same calls through nvidia-ml-py, where it is installed. It finds the library by its
    name, as it is loaded already."""
    try:
        theirs = importlib.import_module("pynvml")
    except ImportError:
        return []
    theirs.nvmlInit()
    try:
        return [
            Figure(
                "the same calls by nvidia-ml-py",
                _median_ms(lambda: _their(theirs), times),
                "ms CPU",
            )
        ]
    finally:
        theirs.nvmlShutdown()


def _their(theirs: object) -> None:
    def call(name: str, *arguments: object) -> object:
        return getattr(theirs, f"nvml{name}")(*arguments)

    call("SystemGetDriverVersion")
    count = call("DeviceGetCount")
    assert isinstance(count, int)
    for index in range(count):
        device = call("DeviceGetHandleByIndex", index)
        for name in ("UUID", "Name", "MinorNumber", "PciInfo", "MemoryInfo", "MigMode"):
            call(f"DeviceGet{name}", device)
        call("DeviceGetProcessUtilization", device, 0)
        for kind in KINDS:
            call(f"DeviceGet{kind}RunningProcesses", device)


def _rdma(directory: Path, devices: int, times: int) -> Figure:
    sys_root = directory / "sys"
    for number in range(devices):
        port = sys_root / f"class/infiniband/mlx5_{number}/ports/1"
        counters = ("port_rcv_data", "port_xmit_data", "symbol_error", "port_xmit_wait")
        files = {f"counters/{name}": "1" for name in counters}
        files |= {f"hw_counters/counter_{each}": "1" for each in range(_RDMA_COUNTERS)}
        files |= {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet"}
        for path, text in files.items():
            (port / path).parent.mkdir(parents=True, exist_ok=True)
            (port / path).write_text(f"{text}\n")
    host = LinuxHost()
    found = read_rdma(host, str(sys_root))
    if len(found.devices) != devices:
        raise RuntimeError(f"{len(found.devices)} of {devices} RDMA devices")
    cost = _median_ms(lambda: read_rdma(host, str(sys_root)), times)
    return Figure(f"RDMA: {devices} devices of {_RDMA_COUNTERS} counters", cost, "ms CPU")


def _xpus(directory: Path, times: int) -> list[Figure]:
    files = directory / "xpus"
    files.mkdir()
    for file in range(4):
        devices = [
            {
                "vendor": "huawei",
                "model": "Ascend-910B",
                "uuid": f"npu-{file}-{number}",
                "minor": str(16 * file + number),
                "resources": {"gpu-core": "100", "gpu-memory": "64Gi"},
                "topology": {"nodeID": "0", "busID": "0000:3b:00.0", "pcieID": "pci0000:3a"},
                "status": {"healthy": True},
            }
            for number in range(16)
        ]
        (files / f"{file}.json").write_text(json.dumps(devices))
    host = LinuxHost()
    reader = XpuReader(host, str(files))
    found = reader.read()
    if len(found.xpus) != 64 or found.refused:
        raise RuntimeError(f"{len(found.xpus)} of 64 accelerators; {found.refused}")
    anew = _median_ms(lambda: XpuReader(host, str(files)).read(), times)
    return [
        Figure("accelerators: 64 in 4 files, read anew", anew, "ms CPU"),
        Figure("the same, nothing has changed", _median_ms(reader.read, times), "ms CPU"),
    ]


def _median_ms(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        before = time.thread_time()
        work()
        taken.append((time.thread_time() - before) * 1000)
    return quantile(taken, 0.5)
