"""The processes of a scene: a service, antagonists and decoys, each in a cgroup of its own."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from bench.tree import enter
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups


class Process(NamedTuple):
    """``group``: its cgroup, and its folder."""

    popen: subprocess.Popen[bytes]
    group: str

    def stop(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.popen.send_signal(signal.SIGCONT)


class Cast:
    """``name``: the cgroup that has the others. All processes end with ``stack``."""

    def __init__(self, cgroups: Cgroups, name: str, folder: str, stack: ExitStack) -> None:
        self._cgroups = cgroups
        self._name = name
        self._folder = folder
        self._stack = stack
        cpus = sorted(os.sched_getaffinity(0))
        self._elsewhere, self._cpu = cpus[0], cpus[-1]
        # What the detectors themselves run would be a disturbance, where CPUs are slow a large one.
        os.sched_setaffinity(0, {self._elsewhere})
        stack.callback(os.sched_setaffinity, 0, cpus)

    def start(self, load: str, group: str, *, elsewhere: bool = False) -> Process:
        """It waits for its release. ``elsewhere``: on another CPU than the service."""
        parent = os.getpid()
        folder = f"{self._folder}/{group}"
        os.makedirs(folder, exist_ok=True)

        def before() -> None:
            die_with_parent(parent)
            os.sched_setaffinity(0, {self._elsewhere})

        popen = subprocess.Popen(
            [sys.executable, "-m", "bench.interference.load", load, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=before,
        )
        process = Process(popen, group)
        self._stack.callback(self.end, process)
        assert popen.stdout is not None
        if not popen.stdout.readline():
            raise RuntimeError(f"the load {load} ended before it began; its error is above")
        if not elsewhere:
            os.sched_setaffinity(popen.pid, {self._cpu})
        enter(self._cgroups, f"{self._name}/{group}", popen.pid)
        return process

    def release(self, processes: Iterable[Process]) -> float:
        """When they began."""
        start = time.monotonic()
        for each in processes:
            assert each.popen.stdin is not None
            each.popen.stdin.write(b"\n")
            each.popen.stdin.flush()
        return start

    def end(self, process: Process) -> None:
        """With its files. Its pipes are closed, not read to the end: a child of it may still hold
        them."""
        process.popen.kill()
        process.popen.wait()
        for pipe in (process.popen.stdin, process.popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was to release it, and it had ended before
                    pipe.close()
        shutil.rmtree(f"{self._folder}/{process.group}", ignore_errors=True)

    def empty(self, group: str) -> None:
        """Children of an antagonist go with it."""
        root = self._cgroups.layout.reference_root
        with open(f"{root}/{self._name}/{group}/cgroup.procs") as file:
            for pid in file.read().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def answered(service: Process) -> list[float]:
    """How long each request took since this was asked last."""
    assert service.popen.stdout is not None
    pipe = service.popen.stdout.fileno()
    os.set_blocking(pipe, False)
    data = b""
    with suppress(BlockingIOError):
        while part := os.read(pipe, 1 << 16):
            data += part
    return [value for (value,) in struct.iter_unpack("<d", data[: len(data) // 8 * 8])]
