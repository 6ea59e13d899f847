"""The environment that a container's first process was started with (proc_pid_environ(5)).

A last resort: the process may have written over it. The kernel bounds it to some megabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host

MAX_PROCESSES = 64
MAX_CGROUPS = 16


def first_environment(
    host: Host, cgroups: Cgroups, cgroup: str, proc_root: str = "/proc"
) -> list[str] | None:
    """``NAME=value`` lines; None where no process tells."""
    found = min(_processes(host, cgroups, cgroup, proc_root), default=None)
    if found is None:
        return None
    try:
        data = host.read(f"{proc_root}/{found[1]}/environ")
    except OSError:
        return None
    return data.decode(errors="replace").split("\0") if data else None


def _nearest(host: Host, directory: str) -> list[bytes]:
    """Ids of processes in the nearest cgroup that has any."""
    waiting = deque([directory])
    for _ in range(MAX_CGROUPS):
        if not waiting:
            break
        path = waiting.popleft()
        with suppress(OSError):
            if pids := host.read(f"{path}/cgroup.procs").split():
                return pids
            waiting += [f"{path}/{name}" for name in host.subdirs(path)]
    return []


def _processes(
    host: Host, cgroups: Cgroups, cgroup: str, proc_root: str
) -> Iterator[tuple[int, int]]:
    """(start in clock ticks, pid) of those in the cgroup, or below it where it has none."""
    for directory in cgroups.directories(cgroup):
        pids = _nearest(host, directory)
        for pid in pids[:MAX_PROCESSES]:
            try:
                stat = host.read(f"{proc_root}/{int(pid)}/stat")
                # The command's name in parentheses may hold spaces; field 3 is the first after it.
                yield int(stat[stat.rfind(b")") + 1 :].split()[19]), int(pid)
            except (OSError, ValueError, IndexError):
                continue
        if pids:  # the other hierarchies have the same
            return
