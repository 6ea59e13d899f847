"""The two sites: scratch groups on this machine, and the same on a fake shaped like it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from koordlet_fakefs import FakeHost, Process, shape

from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.host import Host
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.topology import numa_nodes
from tests.conformance.runner import Site
from tests.controllers import CONTROLLERS, passed_on

MEMORY_BYTES = 30 << 20
V1_PLACES = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer")
_ALLOCATE = """
import os, sys, time
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write("0")
block = bytearray(int(sys.argv[2]))
print("ready", flush=True)
time.sleep(600)
"""


class RealSpawner:
    """Sleeping processes of this machine."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def spawn(self) -> int:
        return self._started(subprocess.Popen(["sleep", "600"]))

    def spawn_memory(self, directory: str) -> int:
        command = [sys.executable, "-S", "-c", _ALLOCATE, directory, str(MEMORY_BYTES)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        return self._started(process)

    def kill(self, pid: int) -> None:
        process = self._running.pop(pid, None)
        if process is not None:
            process.kill()
            process.wait()

    def rename(self, path: str, new: str) -> None:
        os.rename(path, new)

    def close(self) -> None:
        for pid in tuple(self._running):
            self.kill(pid)

    def _started(self, process: subprocess.Popen[bytes]) -> int:
        self._running[process.pid] = process
        return process.pid


class FakeSpawner:
    def __init__(self, host: FakeHost) -> None:
        self._host = host
        self._running: dict[int, Process] = {}

    def spawn(self) -> int:
        return self._started(self._host.spawn(""))

    def spawn_memory(self, directory: str) -> int:
        process = self._host.spawn("")
        self._host.write(f"{directory}/cgroup.procs", str(process.pid).encode())
        self._host.set_memory(process, MEMORY_BYTES)
        return self._started(process)

    def kill(self, pid: int) -> None:
        process = self._running.pop(pid, None)
        if process is not None and process.alive:
            self._host.exit(process)

    def rename(self, path: str, new: str) -> None:
        self._host.rename(path, new)

    def _started(self, process: Process) -> int:
        self._running[process.pid] = process
        return process.pid


def places_of(layout: Layout, name: str) -> dict[str, str]:
    """``cpu`` ... for v1 controllers, ``unified`` for v2 files that need no controller,
    ``v2cpu`` ... for those of a v2 controller."""
    places = {c: f"{layout.v1[c]}/{name}" for c in V1_PLACES if c in layout.v1}
    if layout.v2 is not None:
        places["unified"] = f"{layout.v2}/{name}"
        offered = [c for c in CONTROLLERS if c in layout.v2_controllers]
        places |= {f"v2{c}": f"{layout.v2}/{name}" for c in offered}
    return places


def _prepare(host: Host, layout: Layout, places: Mapping[str, str]) -> None:
    """The scratch groups, usable by children: cpusets full, v2 controllers passed on."""
    if layout.v2 is not None:
        enable = " ".join(f"+{c}" for c in CONTROLLERS if f"v2{c}" in places)
        host.write(f"{layout.v2}/cgroup.subtree_control", enable.encode())
    for directory in sorted(set(places.values())):
        host.mkdir(directory)
    if layout.v2 is not None:
        host.write(f"{places['unified']}/cgroup.subtree_control", enable.encode())
    if "cpuset" in places:
        for file in ("cpuset.cpus", "cpuset.mems"):
            host.write(f"{places['cpuset']}/{file}", host.read(f"{layout.v1['cpuset']}/{file}"))


def _remove(directory: str) -> None:
    """Children first; a group whose process has just been killed may take a moment."""
    if not os.path.isdir(directory):
        return
    for name in os.listdir(directory):
        if os.path.isdir(f"{directory}/{name}"):
            _remove(f"{directory}/{name}")
    deadline = time.monotonic() + 5
    while True:
        try:
            os.rmdir(directory)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def real_site(name: str, disks: Mapping[str, str]) -> Iterator[Site]:
    host = LinuxHost()
    layout = detect(host)
    places = places_of(layout, name)
    spawner = RealSpawner()
    with passed_on(host, layout.v2):
        try:
            _prepare(host, layout, places)
            yield Site(host, places, spawner, disks)
        finally:
            spawner.close()
            for directory in sorted(set(places.values())):
                with suppress(FileNotFoundError):
                    _remove(directory)


def fake_site(name: str, disks: Mapping[str, str]) -> Site:
    """A fake with this machine's layout, kernel version, number of CPUs and memory nodes, and
    disks."""
    layout = detect(LinuxHost())
    cpus = shape(cores_per_l3=os.cpu_count() or 1)
    numbers = [tuple(map(int, number.split(":"))) for number in disks.values()]
    host = FakeHost(
        layout.kind,
        topology=replace(cpus, numa_nodes=len(numa_nodes(LinuxHost()))),
        disks=tuple((major, minor, f"disk{minor}") for major, minor in numbers),
        kernel_release=os.uname().release,
    )
    fake_layout = detect(host)
    places = places_of(fake_layout, name)
    _prepare(host, fake_layout, places)
    return Site(host, places, FakeSpawner(host), disks)


def disks_here() -> dict[str, str]:
    """Up to two block devices: ``{disk}`` and ``{disk2}`` of the scripts."""
    numbers = []
    for name in sorted(os.listdir("/sys/block"), reverse=True):
        with open(f"/sys/block/{name}/dev") as dev, open(f"/sys/block/{name}/size") as size:
            numbers.append((size.read().strip() == "0", dev.read().strip()))
    chosen = [number for _, number in sorted(numbers)[:2]]
    return dict(zip(("disk", "disk2"), chosen, strict=False))
