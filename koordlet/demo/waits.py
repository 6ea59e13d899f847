"""Waits of a service's tasks for a CPU, and behind whom.

It has a tenth of the noise that latencies have, and says what is left to gain.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from koordlet.decision.resource import Resource
from koordlet.demo.model import Behind, Waits
from koordlet.kernel.bpf.run_queue import BpfRunQueue
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.parse import schedstat

_S_PER_NS, _MS_PER_NS = 1e-9, 1e-6
_PROC = Path("/proc")


class WaitMeter:
    """Watches the cgroup of a service, with those below it. ``close`` takes the programs out of the
    kernel."""

    def __init__(self, cgroups: Cgroups, ls: str, be: str) -> None:
        """Take cgroups that exist. ``why_no_matrix``: why it is not known behind whom the service
        waits; empty where it is."""
        self._directories = [Path(path) for path in cgroups.directories(ls)[:1]]
        self.why_no_matrix = ""
        self._queue: BpfRunQueue | None = None
        try:
            self._ls, self._be = (_ids(cgroups, group) for group in (ls, be))
            self._queue = BpfRunQueue(by_cpu_controller=True)
            self._queue.watch(self._ls)
        except (Unsupported, OSError) as error:
            self.why_no_matrix = str(error)

    def read(self) -> Waits:
        return Waits(task_times(self._pids()).waited_ms, self._behind())

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()

    def _pids(self) -> Iterable[str]:
        for directory in self._directories:
            for path in directory.rglob("cgroup.procs"):
                yield from path.read_text().split()

    def _behind(self) -> Behind | None:
        if self._queue is None:
            return None
        own = be = others = 0
        for row in self._queue.read(lambda: None).waits_ns.values():
            for culprit, ns in row.items():
                if culprit in self._ls:
                    own += ns
                elif culprit in self._be:
                    be += ns
                else:
                    others += ns
        return Behind(own * _MS_PER_NS, be * _MS_PER_NS, others * _MS_PER_NS)


def _ids(cgroups: Cgroups, cgroup: str) -> frozenset[int]:
    """Numbers by which the kernel calls the cgroup and those below it."""
    top = os.path.dirname(cgroups.path(cgroup, Resource.CPU_SHARES))
    return frozenset(os.stat(path).st_ino for path, _, _ in os.walk(top))


class TaskTimes(NamedTuple):
    """Sums over all threads of some processes that run now."""

    ran_s: float
    waited_ms: float


def task_times(pids: Iterable[str]) -> TaskTimes:
    """Return the sums of all threads; those that end meanwhile are left out."""
    ran_ns = waited_ns = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in (_PROC / pid / "task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    times = schedstat((task / "schedstat").read_bytes())
                    ran_ns, waited_ns = ran_ns + times.ran_ns, waited_ns + times.waited_ns
    return TaskTimes(ran_ns * _S_PER_NS, waited_ns * _MS_PER_NS)
