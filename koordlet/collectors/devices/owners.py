"""Whose process it is, by the cgroups that it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordlet.decision.devices import UserKind
from koordlet.decision.snapshot import Application, Pod


class Owner(NamedTuple):
    """As ``GpuUser`` has it."""

    kind: UserKind
    name: str = ""
    pod: str = ""


SYSTEM = Owner(UserKind.SYSTEM)


def owners(pods: Iterable[Pod], applications: Iterable[Application]) -> dict[str, Owner]:
    """By cgroup."""
    found = {each.cgroup: Owner(UserKind.APPLICATION, each.name) for each in applications}
    for pod in pods:
        found[pod.cgroup] = Owner(UserKind.POD, pod.uid, pod.uid)
        for container in pod.containers:
            found[container.cgroup] = Owner(UserKind.CONTAINER, container.id, pod.uid)
    return found


def owner_of(cgroups: Iterable[str], known: Mapping[str, Owner]) -> Owner:
    """The innermost: a container may have made cgroups inside its own, and a pod may run inside an
    application. The system, where none is known."""
    inner = max(filter(None, (_around(path, known) for path in cgroups)), key=len, default="")
    return known[inner] if inner else SYSTEM


def _around(path: str, known: Mapping[str, Owner]) -> str:
    """The longest known path that is ``path`` or around it; empty where there is none."""
    while path and path not in known:
        path = path.rpartition("/")[0]
    return path
