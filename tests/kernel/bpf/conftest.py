"""Loads of our own that make each other wait, and the programs that watch them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.bpf.run_queue import BpfRunQueue
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.linux import LinuxHost

SPIN = "while True: pass"


@dataclass
class Loads:
    """Children of one cgroup, and processes in them, all on one CPU."""

    linux: LinuxHost
    cgroups: Cgroups
    layout: Layout
    parent: str
    cpu: int = field(default_factory=lambda: max(os.sched_getaffinity(0)))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def roots(self) -> tuple[str, ...]:
        """Not of cpuset, which takes no process before it has memory nodes."""
        v1 = self.layout.v1
        return tuple(
            {v1[each] for each in ("cpu", "cpuacct") if each in v1} or {self.layout.roots[0]}
        )

    def group(self, name: str, shares: int = 1024) -> str:
        path = f"{self.parent}/{name}"
        for root in self.roots:
            self.linux.mkdir(f"{root}/{path}")
        self.cgroups.write(path, Resource.CPU_SHARES, shares)
        return path

    def id_of(self, group: str) -> int:
        return self.linux.inode(f"{self.layout.reference_root}/{group}")

    def run(self, group: str, program: str = SPIN) -> int:
        """The pid. The process starts when it is in its cgroup."""
        code = f"import os\nos.sched_setaffinity(0, {{{self.cpu}}})\ninput()\n{program}"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        self.processes.append(process)
        for root in self.roots:
            self.linux.write(f"{root}/{group}/cgroup.procs", b"%d" % process.pid)
        assert process.stdin is not None
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
            process.wait()


@pytest.fixture
def loads(linux: LinuxHost, cgroups: Cgroups, layout: Layout, cgroup: str) -> Iterator[Loads]:
    if layout.v2 and "cpu" not in layout.v1:
        linux.write(f"{layout.v2}/{cgroup}/cgroup.subtree_control", b"+cpu")
    loads = Loads(linux, cgroups, layout, cgroup)
    try:
        yield loads
    finally:
        loads.end()


@pytest.fixture
def run_queue(linux: LinuxHost, layout: Layout) -> Iterator[BpfRunQueue]:
    by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(linux, layout)
    try:
        queue = BpfRunQueue(by_cpu_controller=by_cpu)
    except OSError as error:
        if error.errno == errno.E2BIG:  # the verifier gave up: a defect of ours
            raise
        pytest.skip(f"{error.filename}: {error.strerror}")
    try:
        yield queue
    finally:
        queue.close()
