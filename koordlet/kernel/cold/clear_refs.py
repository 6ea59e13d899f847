"""Referenced bits of processes, cleared and looked at again (``/proc/PID/clear_refs`` and
``smaps_rollup``, ``proc(5)``). Any kernel with CONFIG_PROC_PAGE_MONITOR has it, and it is exact,
but for mapped memory alone.

It walks through all of a process's memory twice, flushes its TLB, and takes from the kernel's own
reclaim what it knew of these pages. So it is for one pod at a time, and only where somebody asks
for it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

from koordlet.decision.cgroups import inside
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cold.cold import Cold, NotAvailable, Scan
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import start_ticks

MOST_PROCESSES = 500
"""Of one pod; with more, nothing is said about it."""
_MOST_CGROUPS = 64
"""Of one pod."""
_CLEAR_ALL = b"1"
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)
_FIELDS = (b"Rss:", b"Pss:", b"Private_Clean:", b"Private_Dirty:", b"Referenced:")


class Mapped(NamedTuple):
    """What one process maps. ``private_bytes``: what nobody else does. ``pss_bytes``: that, and of
    what is shared its share."""

    rss_bytes: int
    pss_bytes: int
    private_bytes: int
    referenced_bytes: int

    @property
    def cold_bytes(self) -> int:
        """What is not referenced. The kernel does not say how much of it is shared: only what
        cannot be private is, and that counts by its share."""
        unreferenced = max(self.rss_bytes - self.referenced_bytes, 0)
        private = min(unreferenced, self.private_bytes)
        shared = max(self.rss_bytes - self.private_bytes, 0)
        share_bytes = max(self.pss_bytes - self.private_bytes, 0)
        return private + ((unreferenced - private) * share_bytes // shared if shared else 0)


def parse(data: bytes, path: str = "") -> Mapped:
    """``smaps_rollup``. Empty, as of a process without memory of its own (a zombie), is all 0."""
    if not data.strip():
        return Mapped(0, 0, 0, 0)
    found: dict[bytes, int] = {}
    for line_no, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if len(words) == 3 and words[0] in _FIELDS:
            if not words[1].isdigit() or len(words[1]) > 20 or words[2] != b"kB":
                raise ParseError(path, line_no, f"{line[:60]!r} is not a number of kB")
            found[words[0]] = int(words[1]) * 1024
    for field in _FIELDS:
        if field not in found:
            raise ParseError(path, 0, f"no line {field.decode()!r}")
    rss, pss, private_clean, private_dirty, referenced = (found[field] for field in _FIELDS)
    return Mapped(rss, pss, private_clean + private_dirty, referenced)


class _Process(NamedTuple):
    """Its start time tells it from a later one with the same number."""

    pid: int
    started: int


class ClearRefs:
    """Each scan looks at the pod that the one before has cleared, and clears the next."""

    name = "clear-refs"

    def __init__(self, host: Host, cgroups: Cgroups, proc_root: str = "/proc") -> None:
        self._host = host
        self._cgroups = cgroups
        self._proc_root = proc_root
        self._cleared = ""
        self._processes: tuple[_Process, ...] = ()

    def check(self) -> str:
        path = f"{self._proc_root}/self/smaps_rollup"
        switch = f"{self._proc_root}/self/clear_refs"
        for each in (path, switch):
            if not self._host.exists(each):
                why = f"{each} does not exist (ENOENT)"
                raise NotAvailable(why, "use a kernel with CONFIG_PROC_PAGE_MONITOR")
        parse(self._host.read(path), path)
        self._host.open(switch, write=True).close()
        return f"read {path} and opened {switch} (not written: that takes a walk)"

    def scan(self, cgroups: frozenset[str]) -> Scan:
        found = {}
        pods = _outermost(cgroups)
        if self._processes and self._cleared in cgroups:
            cold_bytes = 0
            for process in self._processes:
                cold_bytes += self._cold_bytes(process)
                yield
            found[self._cleared] = Cold(mapped_bytes=cold_bytes)
        self._processes = ()
        if not pods:
            return found
        self._cleared = next((each for each in pods if each > self._cleared), pods[0])
        cleared = []
        for pid in self._pids(self._cleared):
            if (started := self._clear(pid)) is not None:
                cleared.append(started)
            yield
        self._processes = tuple(cleared)
        return found

    def _pids(self, cgroup: str) -> list[int]:
        """Of the cgroup and those below it; empty where there are too many."""
        found: list[int] = []
        for count, each in enumerate(self._below(cgroup)):
            try:
                data = self._cgroups.read_raw(each, Resource.PROCS)
            except (OSError, Unsupported):
                continue  # gone
            found += (int(word) for word in data.split() if word != b"0")
            if count == _MOST_CGROUPS or len(found) > MOST_PROCESSES:
                return []
        return found

    def _below(self, cgroup: str) -> Iterator[str]:
        waiting = [cgroup]
        for each in waiting:
            yield each
            waiting += self._cgroups.children(each)

    def _clear(self, pid: int) -> _Process | None:
        try:
            process = _Process(pid, start_ticks(self._host, pid, self._proc_root))
            self._host.write(f"{self._proc_root}/{pid}/clear_refs", _CLEAR_ALL)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        return process

    def _cold_bytes(self, process: _Process) -> int:
        """0 of one that has ended."""
        path = f"{self._proc_root}/{process.pid}/smaps_rollup"
        try:
            if start_ticks(self._host, process.pid, self._proc_root) != process.started:
                return 0
            return parse(self._host.read(path), path).cold_bytes
        except OSError as error:
            if error.errno in _GONE:
                return 0
            raise


def _outermost(cgroups: frozenset[str]) -> list[str]:
    """Sorted; those inside another one are left out."""
    found: list[str] = []
    for each in sorted(filter(None, cgroups), key=lambda cgroup: cgroup.split("/")):
        if not found or not inside(each, found[-1]):
            found.append(each)
    return sorted(found)
