"""Ending what runs in a cgroup: SIGTERM, ``cgroup.kill``, or SIGKILL process by process."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Collection

from koordlet.kernel.cgroup import Cgroups
from koordlet.kernel.host import Host

AT_ONCE = 128
"""Processes signalled in one call: some milliseconds."""
GUARDED = frozenset(
    {"systemd", "init", "kubelet", "containerd", "crio", "dockerd", "koordlet", "koord-runtime"}
)
"""Names of processes that must not be in what is ended."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)


def processes(host: Host, cgroups: Cgroups, cgroup: str) -> list[int]:
    """Of the cgroup and all below it, in whichever hierarchy they are; empty when it is gone.
    Zombies and processes of other PID namespaces, which read as 0, do not count."""
    found: set[int] = set()
    for directory in _tree(host, cgroups, cgroup):
        try:
            found.update(int(pid) for pid in host.read(f"{directory}/cgroup.procs").split())
        except OSError as error:
            # EOPNOTSUPP: a threaded cgroup, whose processes its domain lists.
            if error.errno not in (*_GONE, errno.EOPNOTSUPP):
                raise
    return sorted(found - {0})


def guarded(host: Host, pids: Collection[int], proc_root: str = "/proc") -> str:
    """Who of them must not be signalled; empty when nobody."""
    own = os.getpid()
    for pid in pids:
        if pid in (1, own):
            return f"process {pid} is " + ("koordlet itself" if pid == own else "init")
        try:
            status = host.read(f"{proc_root}/{pid}/status").decode(errors="replace")
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        name = fields.get("Name", "")
        # In a PID namespace of its own it has a second number: a container may run its own.
        if name in GUARDED and len(fields.get("NSpid", "").split()) < 2:
            return f"process {pid} is {name}"
    return ""


def terminate(host: Host, cgroups: Cgroups, cgroup: str) -> None:
    """SIGTERM to all, once. Raises OSError."""
    pids = processes(host, cgroups, cgroup)
    for start in range(0, len(pids), AT_ONCE):
        some = pids[start : start + AT_ONCE]
        host.signal(some, signal.SIGTERM, lambda: processes(host, cgroups, cgroup))


def kill(host: Host, cgroups: Cgroups, cgroup: str) -> str:
    """One pass, to be called again until ``processes`` is empty; returns what was done.

    ``cgroup.kill`` ends all at once, forks included. Without it up to ``AT_ONCE`` are ended one by
    one, on v1 while the freezer holds them so that none of them forks meanwhile. Raises OSError.
    """
    unified = cgroups.layout.v2
    at_once = unified is not None and _write(host, f"{unified}/{cgroup}/cgroup.kill", b"1")
    if at_once and not processes(host, cgroups, cgroup):
        return "cgroup.kill"
    state = f"{cgroups.layout.v1.get('freezer', '')}/{cgroup}/freezer.state"
    frozen = "freezer" in cgroups.layout.v1 and _write(host, state, b"FROZEN")
    try:
        pids = processes(host, cgroups, cgroup)[:AT_ONCE]
        host.signal(pids, signal.SIGKILL, lambda: processes(host, cgroups, cgroup))
    finally:
        if frozen:
            # A signal that kills is delivered when the task runs again.
            _write(host, state, b"THAWED")
    return "SIGKILL, frozen" if frozen else "SIGKILL"


def _tree(host: Host, cgroups: Cgroups, cgroup: str) -> list[str]:
    found = list(cgroups.directories(cgroup))
    for directory in found:
        try:
            found += (f"{directory}/{name}" for name in host.subdirs(directory))
        except OSError as error:
            if error.errno not in _GONE:
                raise
    return found


def _write(host: Host, path: str, data: bytes) -> bool:
    """False where there is no such file."""
    try:
        host.write(path, data)
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    return True
