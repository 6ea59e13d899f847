"""Whose cgroup is which: from ids, as the kernel counts by, to pods and applications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.background import Pause
from koordlet.kernel.host import Host
from koordlet.protocol.qos import QoSClass

_MOST_DIRECTORIES = 20_000
_MOST_LEVELS = 6
"""Most directories in the name of a part of the system."""
_SENSITIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Kind(StrEnum):
    """What kind of culprit. ``SELF``: the victim itself, its other tasks. ``SYSTEM``: neither pod
    nor application. ``KERNEL``: the kernel's own threads, of a disk what they write. ``IDLE``:
    nobody, the CPU was slow to wake up. ``THROTTLED``: the victim's own quota. ``OLDER``: longer
    ago than is remembered. ``GONE``: a cgroup that is no more. ``REST``: those that are not among
    the worst."""

    SELF = "self"
    POD = "pod"
    APPLICATION = "application"
    SYSTEM = "system"
    KERNEL = "kernel"
    IDLE = "idle"
    THROTTLED = "throttled"
    OLDER = "older"
    GONE = "gone"
    REST = "rest"


class Group(NamedTuple):
    """A pod (by uid), an application (by name) or a part of the system (by its unit, the first
    directory that is no slice, with the slices above it; ``/`` for the root)."""

    kind: Kind
    name: str


class Place(NamedTuple):
    """A cgroup with processes of a group. ``container_id``: empty where it is no container."""

    cgroup: str
    group: Group
    container_id: str = ""


def victims(pods: Iterable[Pod], applications: Iterable[Application]) -> Iterator[Place]:
    """Latency-sensitive ones that run."""
    for pod in pods:
        if pod.qos in _SENSITIVE and not pod.is_best_effort and pod.is_active:
            yield from _places(pod)
    for application in applications:
        if application.present and application.qos in _SENSITIVE:
            yield Place(application.cgroup, Group(Kind.APPLICATION, application.name))


def _places(pod: Pod) -> Iterator[Place]:
    group = Group(Kind.POD, pod.uid)
    for container in pod.containers:
        if not container.is_sandbox:
            yield Place(container.cgroup, group, container.id)


def prefixes(pods: Iterable[Pod], applications: Iterable[Application]) -> dict[str, Group]:
    """Path of a cgroup -> whose everything in and below it is."""
    found: dict[str, Group] = {}
    for pod in pods:
        group = Group(Kind.POD, pod.uid)
        found[pod.cgroup] = group
        found |= dict.fromkeys((container.cgroup for container in pod.containers), group)
    for application in applications:
        if application.present:
            found[application.cgroup] = Group(Kind.APPLICATION, application.name)
    return found


def group_of(cgroup: str, of_prefix: Mapping[str, Group]) -> Group:
    """By the longest path that is known; else a part of the system."""
    path = cgroup
    while path:
        if path in of_prefix:
            return of_prefix[path]
        path = path.rpartition("/")[0]
    return Group(Kind.SYSTEM, _unit(cgroup) or "/")


def _unit(cgroup: str) -> str:
    parts = cgroup.split("/")[:_MOST_LEVELS]
    slices = sum(1 for _ in takewhile(lambda part: part.endswith(".slice"), parts))
    return "/".join(parts[: slices + 1])


def paths_of(host: Host, root: str, wanted: frozenset[int], pause: Pause) -> dict[int, str]:
    """Paths of cgroups by id, relative to the hierarchy's root. A search through all of it, ended
    early where all are found and at a bound in any case."""
    found: dict[int, str] = {}
    directories = [""]
    for number, directory in enumerate(directories):
        if number >= _MOST_DIRECTORIES or len(found) == len(wanted):
            break
        pause()
        try:
            inodes = host.subdir_inodes(f"{root}/{directory}".rstrip("/"))
        except OSError:
            continue
        for name, inode in inodes.items():
            path = f"{directory}/{name}".lstrip("/")
            directories.append(path)
            if inode in wanted:
                found[inode] = path
    return found
