"""Limits of block I/O on cgroup v1, where they apply only to the processes directly in a cgroup,
not to those in cgroups inside it (Linux ``block/blk-throttle.c``: on v1 every group is treated as
if it were right below the root).

So every cgroup with processes in a target gets an equal part of its limits: together they have
what v2 gives them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.cgroups import inside, parent
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, InForce, Pod, Snapshot, WakeKind
from koordlet.qos.cpu_suppress.targets import walk

LOOK_S = 10.0
"""Time between two searches for cgroups inside containers and applications; a change of the node
triggers one at once."""


class FlatLimits(msgspec.Struct, frozen=True):
    """``below``: container or application -> it and all inside it, as of ``at``; True for those
    that count, because they have processes or are about to."""

    at: float = 0.0
    below: Mapping[str, Mapping[str, bool]] = {}


def looked(snapshot: Snapshot, memory: FlatLimits, tops: frozenset[str]) -> FlatLimits:
    """``tops``: the targets."""
    if not tops:
        return FlatLimits()
    due = snapshot.now - memory.at >= LOOK_S or snapshot.wake.kind is WakeKind.CHANGE
    known = {} if due else memory.below
    below = {}
    for cgroup in _holders(snapshot):
        if any(inside(cgroup, top) for top in tops):
            found = known.get(cgroup)
            below[cgroup] = _tree(snapshot.in_force, cgroup) if found is None else found
    return FlatLimits(snapshot.now if due else memory.at, below)


def members(memory: FlatLimits, top: str) -> tuple[tuple[str, ...], int]:
    """The cgroups inside ``top``, or it itself, whose processes the limits of ``top`` are for; and
    among how many the limits are divided."""
    found: dict[str, bool] = {}
    for cgroup, each in memory.below.items():
        if inside(cgroup, top):
            found |= each
    return tuple(sorted(found)), max(sum(found.values()), 1)


def _tree(in_force: InForce, top: str) -> Mapping[str, bool]:
    cgroups = [cgroup for cgroup, _ in walk(in_force, top)]
    above = {parent(cgroup) for cgroup in cgroups[1:]}
    return {
        cgroup: cgroup not in above or bool(in_force.value(cgroup, Resource.PROCS))
        for cgroup in cgroups
    }


def part(lines: Mapping[str, str], count: int) -> Mapping[str, str]:
    """The part of a target's limits that each of ``count`` gets; a limit of 0 would mean none."""
    return {disk: str(max(int(rest) // count, 1)) if rest else "" for disk, rest in lines.items()}


def tightest(one: Mapping[str, str], other: Mapping[str, str]) -> Mapping[str, str]:
    """Of limits for the same processes."""
    both = {**one, **other}
    for disk in one.keys() & other.keys():
        both[disk] = min(filter(None, (one[disk], other[disk])), key=int, default="")
    return both


def _holders(snapshot: Snapshot) -> list[str]:
    """Containers and applications. A sandbox only waits, unless it is a virtual machine."""
    found = [
        container.cgroup
        for pod in snapshot.pods
        if pod.is_active
        for container in pod.containers
        if container.cgroup and not _only_waits(pod, container)
    ]
    found += [each.cgroup for each in snapshot.applications if each.present and each.cgroup]
    return found


def _only_waits(pod: Pod, container: Container) -> bool:
    return container.is_sandbox is True and not pod.is_in_guest
