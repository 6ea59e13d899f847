"""What kubelet and a container runtime do to the cgroup trees."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.machine import Machine, Process
from koordlet_fakefs.parse import refuse

_SCOPE = {"containerd": "cri-containerd", "docker": "docker", "cri-o": "crio", "pouch": "pouch"}


@dataclass(frozen=True)
class PodGroups:
    """Relative paths of the groups of one pod."""

    parents: tuple[str, ...]
    pod: str
    containers: tuple[str, ...]


def pod_groups(
    driver: str, qos: str, uid: str, containers: tuple[str, ...], runtime: str
) -> PodGroups:
    """Names by driver: ``cgroupfs`` or ``systemd`` (kubelet's cm package)."""
    tier = "" if qos == "guaranteed" else qos
    if driver == "cgroupfs":
        parents = ["kubepods"] + ([f"kubepods/{tier}"] if tier else [])
        pod = f"{parents[-1]}/pod{uid}"
        return PodGroups(tuple(parents), pod, tuple(f"{pod}/{name}" for name in containers))
    stem = f"kubepods-{tier}" if tier else "kubepods"
    parents = ["kubepods.slice"] + ([f"kubepods.slice/{stem}.slice"] if tier else [])
    pod = f"{parents[-1]}/{stem}-pod{uid.replace('-', '_')}.slice"
    scopes = tuple(f"{pod}/{_SCOPE[runtime]}-{name}.scope" for name in containers)
    return PodGroups(tuple(parents), pod, scopes)


def find(root: Cgroup, path: str) -> Cgroup | None:
    group = root
    for name in path.split("/") if path else ():
        child = group.children.get(name)
        if child is None:
            return None
        group = child
    return group


def make_cgroup(machine: Machine, path: str) -> None:
    for hierarchy in machine.hierarchies:
        group = hierarchy.root
        for name in path.split("/"):
            if hierarchy.version == 2:
                _delegate(group)
            if name not in group.children:
                group.mkdir(name)
            group = group.children[name]
            _fill_cpuset(group)


def _delegate(group: Cgroup) -> None:
    """Every controller the group has goes on to its children."""
    if group.parent is None:
        return  # what the root passes on is systemd's to say
    for name in group.hierarchy.controllers:
        if name in group.enabled and name not in group.subtree_control:
            group.subtree_control.add(name)
            for child in group.children.values():
                child.enable(name)


def _fill_cpuset(group: Cgroup) -> None:
    parent = group.parent
    if group.hierarchy.version == 1 and group.cpuset and parent and parent.cpuset:
        group.cpuset.cpus = group.cpuset.cpus or parent.cpuset.cpus
        group.cpuset.mems = group.cpuset.mems or parent.cpuset.mems


def enter(machine: Machine, process: Process, path: str) -> None:
    """Put a process into the group everywhere it exists."""
    found = [find(hierarchy.root, path) for hierarchy in machine.hierarchies]
    groups = [group for group in found if group is not None]
    if not groups:
        raise refuse(errno.ENOENT)
    for group in groups:
        group.attach(process.threads.values())


def rename_cgroup(machine: Machine, path: str, name: str) -> None:
    found = [find(hierarchy.root, path) for hierarchy in machine.hierarchies]
    groups = [group for group in found if group is not None and group.hierarchy.version == 1]
    if not groups:
        raise refuse(errno.ENOENT)
    for group in groups:
        group.rename(name)


def remove_cgroup(machine: Machine, path: str) -> None:
    for hierarchy in machine.hierarchies:
        group = find(hierarchy.root, path)
        if group is None or group.parent is None:
            continue
        for below in reversed(list(group.subtree())):
            for thread in list(below.threads.values()):
                if thread.process.alive:
                    machine.exit(thread.process)
            assert below.parent is not None
            below.parent.rmdir(below.name)
