"""Advice to who takes memory faster than it is freed: which limit is short, and who fills it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koordlet.decision.cgroups import inside, parent
from koordlet.decision.metrics import (
    CONTAINER_MEMORY_USAGE,
    HOST_APPLICATION_MEMORY_USAGE,
    POD_MEMORY_USAGE,
    Metric,
)
from koordlet.decision.names import shown
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.qos.interference.titles import title
from koordlet.qos.interference.windows import OLDEST_S, Who


class _User(NamedTuple):
    """Somebody whose memory counts toward a limit. ``bytes`` None: it is not measured."""

    cgroup: str
    title: str
    bytes: float | None


def advice(snapshot: Snapshot, victim: Who) -> str:
    """Return the end of a sentence: a limit is raised where there is one."""
    pod = next((p for p in snapshot.pods if victim.kind == "pod" and p.uid == victim.name), None)
    if pod is not None:
        return _of_pod(snapshot, pod) or _above(snapshot, victim, pod.cgroup)
    for application in snapshot.applications:
        if victim.kind == "application" and application.name == victim.name:
            if _limit(snapshot, application.cgroup) is not None:
                return ": raise its memory limit"
            return _above(snapshot, victim, application.cgroup)
    return ""


def _of_pod(snapshot: Snapshot, pod: Pod) -> str:
    """Name the container where one of several is at its limit, or fills that of the pod; empty
    without a limit."""
    containers = [
        _User(each.cgroup, f"container {shown(each.name or each.id)}", used)
        for each in pod.containers
        if not each.is_sandbox
        for used in (_used(snapshot, CONTAINER_MEMORY_USAGE, each.id),)
    ]
    whole = _User(pod.cgroup, "", _used(snapshot, POD_MEMORY_USAGE, pod.uid))
    limited = [
        (each, limit)
        for each in (whole, *containers)
        if (limit := _limit(snapshot, each.cgroup)) is not None
    ]
    if not limited:
        return ""
    fullest, _ = max(limited, key=lambda found: (found[0].bytes or 0.0) / max(found[1], 1))
    if len(containers) < 2 or fullest.bytes is None:
        return ": raise its memory limit"
    if fullest is not whole:
        return f": raise the memory limit of its {fullest.title}"
    largest = _largest(containers)
    if largest is None:
        return ": raise its memory limit"
    return (
        f" below the limit of the pod as a whole, and its {largest.title} has most of that memory: "
        "give that one a limit, or raise that of the pod"
    )


def _above(snapshot: Snapshot, victim: Who, cgroup: str) -> str:
    """Name who fills the next limit above ``cgroup``, which has none."""
    above = parent(cgroup)
    while above and _limit(snapshot, above) is None:
        above = parent(above)
    if not above:
        return ", and has no limit of its own: the node is short of memory"
    text = f" below the limit of {shown(above)}, and has none of its own: "
    largest = _largest(
        each
        for each in _users(snapshot)
        if inside(each.cgroup, above) and (each.cgroup == cgroup or not inside(cgroup, each.cgroup))
    )
    if largest is None:
        return f"{text}look for who else fills that one (`koordlet pods`), or raise it"
    if largest.cgroup == cgroup:
        return f"{text}it has most of the memory in there itself, so raise that one"
    return f"{text}{largest.title} has most of the memory in there: limit it, or raise that one"


def _users(snapshot: Snapshot) -> Iterator[_User]:
    for pod in snapshot.pods:
        used = _used(snapshot, POD_MEMORY_USAGE, pod.uid)
        yield _User(pod.cgroup, title(snapshot, Who("pod", pod.uid)), used)
    for each in snapshot.applications:
        if each.present:
            used = _used(snapshot, HOST_APPLICATION_MEMORY_USAGE, each.name)
            yield _User(each.cgroup, title(snapshot, Who("application", each.name)), used)


def _largest(users: Iterable[_User]) -> _User | None:
    """Return None where none is measured."""
    measured = [each for each in users if each.bytes is not None]
    return max(measured, key=lambda each: (each.bytes or 0.0, each.title), default=None)


def _used(snapshot: Snapshot, metric: Metric, name: str) -> float | None:
    reading = snapshot.metrics.read(metric, (name,), window_s=OLDEST_S)
    return reading.value if reading is not None else None


def _limit(snapshot: Snapshot, cgroup: str) -> int | None:
    value = snapshot.in_force.value(cgroup, Resource.MEMORY_LIMIT)
    return value if isinstance(value, int) and value != UNLIMITED else None
