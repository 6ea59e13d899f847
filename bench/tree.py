"""Scratch cgroups of a bench: made in every hierarchy, emptied and removed again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from koordlet.decision.resource import MIN_SHARES, Resource
from koordlet.kernel.cgroup.cgroups import Cgroups

_V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory")
_EMPTY_TIMEOUT_S = 5.0
_SHARES_OF_CPU = 1024
POD_SHARES = 102
"""CPU weight of a pod that asks for a tenth of a CPU."""
Make = Callable[[str], None]


@contextmanager
def scratch_root(cgroups: Cgroups, name: str) -> Iterator[Make]:
    """The cgroup ``name`` in all hierarchies, and the function that makes others below it,
    parents first. At the end every process in them is killed, and all are removed."""

    def make(cgroup: str) -> None:
        for root in cgroups.layout.roots:
            path = f"{root}/{cgroup}"
            os.mkdir(path)
            if root == cgroups.layout.v1.get("cpuset"):
                _inherit_cpuset(path)
            if root == cgroups.layout.v2:
                _enable_controllers(cgroups, os.path.dirname(path))

    try:
        make(name)
        yield make
    finally:
        for root in cgroups.layout.roots:
            remove_tree(f"{root}/{name}")


def remove_tree(path: str) -> None:
    """A cgroup directory with all below it; every process there is killed."""
    found = [directory for directory, _, _ in os.walk(path)]
    _empty(found)
    for directory in reversed(found):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(directory)


def top_of(parent: str) -> str:
    """The cgroup that stands for the root of a node. Its tree is then two levels below the root of
    the machine and one more, where no other koordlet looks for one."""
    return f"{parent}/node"


def kubepods_of(parent: str) -> str:
    return f"{top_of(parent)}/kubepods"


def besteffort_of(parent: str) -> str:
    return f"{kubepods_of(parent)}/besteffort"


def make_pods(cgroups: Cgroups, make: Make, parent: str, pods: int, containers: int) -> list[str]:
    """A kubepods tree at ``kubepods_of(parent)``, a third of the pods in each tier and a CPU limit
    on every second one, with the CPU weights that kubelet gives: ``POD_SHARES`` for what a pod asks
    for, the least there is for best-effort. Returns the cgroups of the containers, those of pods
    0, 3, 6 ... guaranteed, of 1, 4, 7 ... burstable, of 2, 5, 8 ... best-effort."""
    make(top_of(parent))
    tiers = ("", "/burstable", "/besteffort")
    for tier in tiers:
        make(f"{kubepods_of(parent)}{tier}")
    whole = _SHARES_OF_CPU * (os.cpu_count() or 1)
    for cgroup in (parent, top_of(parent), kubepods_of(parent)):
        cgroups.write(cgroup, Resource.CPU_SHARES, whole)
    of_burstable = max(POD_SHARES * len(range(1, pods, 3)), MIN_SHARES)
    cgroups.write(f"{kubepods_of(parent)}/burstable", Resource.CPU_SHARES, of_burstable)
    cgroups.write(besteffort_of(parent), Resource.CPU_SHARES, MIN_SHARES)
    found = []
    for n in range(pods):
        tier = tiers[n % 3]
        pod = f"{kubepods_of(parent)}{tier}/pod{n:08x}-0000-4000-8000-000000000000"
        make(pod)
        shares = MIN_SHARES if tier == "/besteffort" else POD_SHARES
        cgroups.write(pod, Resource.CPU_SHARES, shares)
        if n % 2:
            cgroups.write(pod, Resource.CPU_QUOTA_US, 100_000)
        for c in range(containers):
            found.append(f"{pod}/{n * containers + c:064x}")
            make(found[-1])
            cgroups.write(found[-1], Resource.CPU_SHARES, shares)
    return found


def enter(cgroups: Cgroups, cgroup: str, pid: int) -> None:
    """Move a process into ``cgroup`` of every hierarchy."""
    for root in cgroups.layout.roots:
        _write(f"{root}/{cgroup}/cgroup.procs", str(pid))


@contextmanager
def entered(cgroups: Cgroups, cgroup: str) -> Iterator[None]:
    """This process in ``cgroup`` of the hierarchy of CPU weights; then where it was before."""
    directory = os.path.dirname(cgroups.path(cgroup, Resource.CPU_SHARES))
    wanted = "cpu" if "cpu" in cgroups.layout.v1 else ""
    with open("/proc/self/cgroup") as file:
        places = [line.rstrip("\n").split(":", 2) for line in file]
    before = next(path for _, names, path in places if wanted in names.split(","))
    _write(f"{directory}/cgroup.procs", str(os.getpid()))
    try:
        yield
    finally:
        root = directory.removesuffix(f"/{cgroup}")
        _write(f"{root}{before}/cgroup.procs", str(os.getpid()))


def _enable_controllers(cgroups: Cgroups, path: str) -> None:
    """Those that the groups below ``path`` need. At the root they stay on, as everywhere."""
    wanted = sorted(cgroups.layout.v2_controllers.intersection(_V2_CONTROLLERS))
    if wanted:
        _write(f"{path}/cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))


def _inherit_cpuset(path: str) -> None:
    for name in ("cpuset.mems", "cpuset.cpus"):
        with open(f"{os.path.dirname(path)}/{name}") as file:
            _write(f"{path}/{name}", file.read().strip())


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _empty(directories: list[str]) -> None:
    deadline = time.monotonic() + _EMPTY_TIMEOUT_S
    while pids := {pid for path in directories for pid in _pids(path)}:
        for pid in pids - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} in {directories[0]} do not end")
        time.sleep(0.01)


def _pids(path: str) -> list[int]:
    try:
        with open(f"{path}/cgroup.procs") as file:
            return [int(line) for line in file]
    except OSError:  # removed by hand meanwhile
        return []
