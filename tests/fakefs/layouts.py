"""Which controller is mounted where: the layouts that distributions have."""

from __future__ import annotations

import errno
from typing import Literal

from koordlet_fakefs.cgroup import Controller, Hierarchy
from koordlet_fakefs.cgroup_v1 import CORE_V1
from koordlet_fakefs.cgroup_v2 import CORE_V2, on_create
from koordlet_fakefs.machine import Machine
from koordlet_fakefs.resources.account import CPUACCT
from koordlet_fakefs.resources.cpu import CPU
from koordlet_fakefs.resources.cpuset import CPUSET
from koordlet_fakefs.resources.io import BLKIO, IO
from koordlet_fakefs.resources.limits import (
    DEVICES,
    FREEZER,
    HUGETLB,
    NET_CLS,
    NET_PRIO,
    PERF_EVENT,
    PIDS,
)
from koordlet_fakefs.resources.memory_files import MEMORY
from koordlet_fakefs.tree import Directory, Link

Layout = Literal["v1", "hybrid", "v2", "comount"]
MOUNT = "/sys/fs/cgroup"
_SEPARATE: tuple[tuple[Controller, ...], ...] = (
    (CPU,),
    (CPUACCT,),
    (CPUSET,),
    (MEMORY,),
    (DEVICES,),
    (FREEZER,),
    (BLKIO,),
    (PIDS,),
)
_COMOUNTED: tuple[tuple[Controller, ...], ...] = (
    (CPUSET,),
    (CPU, CPUACCT),
    (BLKIO,),
    (MEMORY,),
    (DEVICES,),
    (FREEZER,),
    (NET_CLS, NET_PRIO),
    (PERF_EVENT,),
    (PIDS,),
)
_V2_CONTROLLERS = (CPUSET, CPU, IO, MEMORY, HUGETLB, PIDS)
DELEGATED = ("cpuset", "cpu", "io", "memory", "pids")
"""Enabled below the v2 root, as systemd does for its slices."""


class _Tmpfs(Directory):
    """/sys/fs/cgroup of v1: a tmpfs that nothing here writes to."""

    mkdir_errno = errno.EROFS


def mount(machine: Machine, sys: Directory, layout: Layout) -> None:
    """Mounts the hierarchies of ``layout`` below ``sys``/fs/cgroup."""
    fs = sys.entries.setdefault("fs", Directory())
    assert isinstance(fs, Directory)
    if layout == "v2":
        unified = _unified(machine, MOUNT, _V2_CONTROLLERS)
        for name in DELEGATED:
            unified.root.subtree_control.add(name)
        fs.entries["cgroup"] = unified.root
        return
    tmpfs = _Tmpfs()
    fs.entries["cgroup"] = tmpfs
    groups = _COMOUNTED if layout == "comount" else _SEPARATE
    for number, controllers in enumerate(groups, start=1):
        directory = ",".join(controller.name for controller in controllers)
        hierarchy = Hierarchy(machine, number, 1, f"{MOUNT}/{directory}", controllers, CORE_V1)
        machine.hierarchies.append(hierarchy)
        tmpfs.entries[directory] = hierarchy.root
        if len(controllers) > 1:
            for controller in controllers:
                tmpfs.entries[controller.name] = Link(hierarchy.root)
    systemd = Hierarchy(
        machine, len(groups) + 1, 1, f"{MOUNT}/systemd", (), CORE_V1, name="systemd"
    )
    machine.hierarchies.append(systemd)
    tmpfs.entries["systemd"] = systemd.root
    if layout != "v1":
        tmpfs.entries["unified"] = _unified(machine, f"{MOUNT}/unified", (HUGETLB,)).root


def _unified(machine: Machine, path: str, controllers: tuple[Controller, ...]) -> Hierarchy:
    hierarchy = Hierarchy(machine, 0, 2, path, controllers, CORE_V2, on_create=on_create)
    machine.hierarchies.append(hierarchy)
    return hierarchy
