"""Loads of our own that make each other wait, and the programs that watch them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.objects import has_task_storage
from koordlet.kernel.bpf.run_queue import BpfRunQueue
from koordlet.kernel.bpf.stalls import BpfStalls
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.linux import LinuxHost

SPIN = "while True: pass"
DISK_BYTES = 64 << 20
T = TypeVar("T")


@dataclass
class Loads:
    """Children of one cgroup, and processes in them, all on one CPU. ``controllers``: in the v1
    hierarchies of these, or in the unified one."""

    linux: LinuxHost
    cgroups: Cgroups
    layout: Layout
    parent: str
    controllers: tuple[str, ...] = ("cpu", "cpuacct")
    cpu: int = field(default_factory=lambda: max(os.sched_getaffinity(0)))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def roots(self) -> tuple[str, ...]:
        """Not of cpuset, which takes no process before it has memory nodes."""
        return tuple({self.root_of(controller) for controller in self.controllers})

    def root_of(self, controller: str) -> str:
        return self.layout.v1.get(controller) or self.layout.v2 or self.layout.roots[0]

    def group(self, name: str, shares: int = 1024) -> str:
        path = f"{self.parent}/{name}"
        for root in self.roots:
            self.linux.mkdir(f"{root}/{path}")
        self.cgroups.write(path, Resource.CPU_SHARES, shares)
        return path

    def id_of(self, group: str, controller: str = "cpu") -> int:
        return self.linux.inode(f"{self.root_of(controller)}/{group}")

    def run(self, group: str, program: str = SPIN) -> int:
        """The pid. ``program`` starts when it is in its cgroup. What it prints is in
        ``processes[-1].stdout``."""
        code = f"import os\nos.sched_setaffinity(0, {{{self.cpu}}})\nprint(flush=True)\ninput()\n"
        process = subprocess.Popen(
            [sys.executable, "-c", code + program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()  # Python itself has started, which takes disk and memory
        for root in self.roots:
            self.linux.write(f"{root}/{group}/cgroup.procs", b"%d" % process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        return process.pid

    def cpu_ns(self, group: str) -> int:
        value = self.cgroups.read(group, Resource.CPUACCT_USAGE)
        assert isinstance(value, int)
        return value

    def waited_ns(self, pid: int) -> int:
        """Of the main thread (``/proc/PID/schedstat``)."""
        return int(self.linux.read(f"/proc/{pid}/schedstat").split()[1])

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def loaded(make: Callable[[], T]) -> T:
    """Skips where the machine lacks something. A program that the kernel refuses although it has
    BTF, and we the capabilities, is a defect of ours."""
    try:
        return make()
    except OSError as error:
        if isinstance(error, NeedError) or error.errno == errno.EPERM:
            pytest.skip(f"{error.filename}: {error.strerror}")
        if error.errno == errno.EINVAL and not has_task_storage():
            pytest.skip(f"{error.filename}: {error.strerror}; Linux before 5.12")
        raise


@contextmanager
def _running(loads: Loads) -> Iterator[Loads]:
    v2 = loads.layout.v2
    for controller, file in (("cpu", "cpu.weight"), ("io", "io.stat"), ("memory", "memory.max")):
        if v2 and loads.linux.exists(f"{v2}/{loads.parent}/{file}"):
            control = f"{v2}/{loads.parent}/cgroup.subtree_control"
            loads.linux.write(control, f"+{controller}".encode())
    try:
        yield loads
    finally:
        loads.end()


@pytest.fixture
def loads(linux: LinuxHost, cgroups: Cgroups, layout: Layout, cgroup: str) -> Iterator[Loads]:
    with _running(Loads(linux, cgroups, layout, cgroup)) as loads:
        yield loads


@pytest.fixture
def everywhere(linux: LinuxHost, cgroups: Cgroups, layout: Layout, cgroup: str) -> Iterator[Loads]:
    """Loads whose disk requests, memory and sockets are theirs as well."""
    controllers = ("cpu", "blkio", "memory", "unified")
    with _running(Loads(linux, cgroups, layout, cgroup, controllers)) as loads:
        yield loads


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a real disk, which a temporary one need not be."""
    with tempfile.TemporaryDirectory(prefix="koordlet-test-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def disk(linux: LinuxHost) -> Iterator[str]:
    """A device on which nobody else has requests, and which makes none on others: a loop device
    whose file is in memory."""
    if not shutil.which("losetup"):
        pytest.skip("needs losetup")
    file = Path(f"/dev/shm/koordlet-test-{time.monotonic_ns()}")
    with file.open("wb") as made:
        made.truncate(DISK_BYTES)
    try:
        found = subprocess.run(
            ["losetup", "--find", "--show", file], capture_output=True, text=True, check=False
        )
        if found.returncode:
            pytest.skip(f"needs a loop device: {found.stderr.strip()}")
        device = found.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    finally:
        file.unlink()


@pytest.fixture
def run_queue(linux: LinuxHost, layout: Layout) -> Iterator[BpfRunQueue]:
    by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(linux, layout)
    queue = loaded(lambda: BpfRunQueue(by_cpu_controller=by_cpu))
    try:
        yield queue
    finally:
        queue.close()


@pytest.fixture
def stalls(linux: LinuxHost, everywhere: Loads) -> Iterator[BpfStalls]:
    layout = everywhere.layout
    root = everywhere.root_of("memory")
    if "memory" not in layout.v1 and not linux.exists(f"{root}/{everywhere.parent}/memory.max"):
        pytest.skip("needs the controller memory")
    stalls = loaded(lambda: BpfStalls(by_memory_controller="memory" in layout.v1))
    try:
        yield stalls
    finally:
        stalls.close()
