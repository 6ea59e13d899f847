"""Ending what runs in a cgroup: SIGTERM, ``cgroup.kill``, or SIGKILL process by process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Collection, Iterable, Iterator

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host, read_lines

AT_ONCE = 128
"""Processes signalled in one call: some milliseconds."""
MOST = 200
"""Cgroups looked at for a process: some milliseconds."""
GUARDED = frozenset(
    {"systemd", "init", "kubelet", "containerd", "crio", "dockerd", "koordlet", "koord-runtime"}
)
"""Names of processes that must not be in what is ended."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)


def processes(host: Host, cgroups: Cgroups, cgroup: str) -> list[int]:
    """Of the cgroup and all below it, in whichever hierarchy they are; empty when it is gone.
    Zombies and processes of other PID namespaces, which read as 0, do not count. Raises OSError
    where they cannot be looked at: who is out of sight is not gone."""
    found: set[int] = set()
    for directory in _tree(host, cgroups, cgroup):
        found.update(_directly_in(host, directory))
    return sorted(found - {0})


def is_populated(host: Host, cgroups: Cgroups, cgroup: str) -> bool:
    """Whether a process is in the cgroup or below it. In a crowd of cgroups ``MOST`` are looked at,
    and then it counts as populated. Raises as ``processes``."""
    layout = cgroups.layout
    if layout.v2 is not None and not layout.v1:
        with contextlib.suppress(FileNotFoundError):
            events = host.read(f"{layout.v2}/{cgroup}/cgroup.events")
            return b"populated 0" not in events.splitlines()
        return False
    return any(
        number >= MOST or set(_directly_in(host, directory)) - {0}
        for number, directory in enumerate(_walk(host, cgroups, cgroup))
    )


def _directly_in(host: Host, directory: str) -> Iterable[int]:
    for last in (False, True):
        try:
            return [int(pid) for pid in read_lines(host, f"{directory}/cgroup.procs").split()]
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                break  # a threaded cgroup, whose processes its domain lists
            if error.errno not in _GONE:
                raise
            if not host.exists(directory):
                break
            if last:  # the first time it may just have been on its way out
                raise
    return ()


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


def freezer(cgroups: Cgroups, cgroup: str) -> str:
    """The directory where ``kill`` freezes; empty where it does not."""
    root = cgroups.layout.v1.get("freezer")
    return f"{root}/{cgroup}" if root is not None else ""


def thaw(host: Host, directory: str, inode: int) -> bool:
    """Let go what ``kill`` may have left frozen in this directory of the freezer. False where that
    has to be tried again: the file cannot be reached."""
    try:
        if host.inode(directory) == inode:
            host.write(f"{directory}/freezer.state", b"THAWED")
    except OSError as error:
        # Gone, unless the hierarchy itself is out of sight.
        above = directory.rpartition("/")[0]
        return error.errno == errno.ENOENT and host.exists(f"{above}/cgroup.procs")
    return True


def kill(host: Host, cgroups: Cgroups, cgroup: str, *, freeze: bool = True) -> str:
    """One pass, to be called again until ``processes`` is empty; returns what was done.

    ``cgroup.kill`` ends all at once, forks included. Without it up to ``AT_ONCE`` are ended one by
    one, on v1 while the freezer holds them so that none of them forks meanwhile (``freeze``).
    Raises OSError; then they may be left frozen, see ``thaw``.
    """
    unified = cgroups.layout.v2
    at_once = unified is not None and _write(host, f"{unified}/{cgroup}/cgroup.kill", b"1")
    if at_once and not processes(host, cgroups, cgroup):
        return "cgroup.kill"
    directory = freezer(cgroups, cgroup) if freeze else ""
    state = f"{directory}/freezer.state"
    frozen = bool(directory) and _write(host, state, b"FROZEN")
    try:
        pids = processes(host, cgroups, cgroup)[:AT_ONCE]
        host.signal(pids, signal.SIGKILL, lambda: processes(host, cgroups, cgroup))
    finally:
        if frozen:
            # A signal that kills is delivered when the task runs again.
            _write(host, state, b"THAWED")
    return "SIGKILL, frozen" if frozen else "SIGKILL"


def _tree(host: Host, cgroups: Cgroups, cgroup: str) -> list[str]:
    return list(_walk(host, cgroups, cgroup))


def _walk(host: Host, cgroups: Cgroups, cgroup: str) -> Iterator[str]:
    found = list(cgroups.directories(cgroup))
    for root in cgroups.layout.roots if not found else ():
        host.inode(f"{root}/cgroup.procs")  # raises where the hierarchy itself is out of sight
    for directory in found:
        yield directory
        try:
            found += (f"{directory}/{name}" for name in host.subdirs(directory))
        except OSError as error:
            if error.errno not in _GONE:
                raise


def _write(host: Host, path: str, data: bytes) -> bool:
    """False where there is no such file."""
    try:
        host.write(path, data)
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    return True
