"""The biggest processes of "system": those in the cgroup of no pod and no application.

psutil lists them. It is imported here and nowhere in the daemon, and only when a screen is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from koordlet.decision.names import meant, shown
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.cgroup import cgroup_paths

SHOWN = 5
LOOKED_AT = 8192
"""Processes in one look; with more of them some are overlooked."""


class Process(NamedTuple):
    """``cores``: CPU since the look before, user and system time. ``cgroup``: its path as people
    see it."""

    pid: int
    name: str
    cores: float
    rss_bytes: int
    cgroup: str


class SystemProcesses:
    """Compares one look with the one before, so the first finds nothing."""

    def __init__(self) -> None:
        self._host = LinuxHost()
        self._cpu_s: dict[int, float] = {}
        self._looked_s: float | None = None

    def biggest(self, owned: Collection[str], count: int = SHOWN) -> tuple[Process, ...]:
        """At most ``count`` processes that used CPU, the biggest first. ``owned``: cgroups of pods
        and applications, as the daemon shows them."""
        import psutil

        before, previous_s = self._cpu_s, self._looked_s
        self._cpu_s, self._looked_s = _cpu_seconds(), time.monotonic()
        if previous_s is None:
            return ()
        elapsed_s = max(self._looked_s - previous_s, 1e-3)
        # A pid that was used again has less CPU time than the process before it.
        used = {
            pid: cpu_s - before[pid]
            for pid, cpu_s in self._cpu_s.items()
            if pid in before and cpu_s > before[pid]
        }
        inside = tuple(f"{meant(each)}/" for each in owned)
        found: list[Process] = []
        for pid in sorted(used, key=lambda each: (-used[each], each)):
            if len(found) == count:
                break
            try:
                paths = cgroup_paths(self._host, pid)
                if any(f"{path}/".startswith(inside) for path in paths):
                    continue
                process = psutil.Process(pid)
                name, rss_bytes = process.name(), process.memory_info().rss
            except (OSError, psutil.Error):  # it has ended meanwhile
                continue
            place = shown(max(paths, key=len, default="")) or "/"
            found.append(Process(pid, name, used[pid] / elapsed_s, rss_bytes, place))
        return tuple(found)


def _cpu_seconds() -> dict[int, float]:
    import psutil

    found = {}
    for process in islice(psutil.process_iter(), LOOKED_AT):
        try:
            times = process.cpu_times()
        except (OSError, psutil.Error):
            continue
        found[process.pid] = times.user + times.system
    return found
