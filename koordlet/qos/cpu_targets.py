"""Where best-effort work lives: the cgroups that CPU suppress limits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlet.decision.cgroups import inside, sensitive_inside
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce, Snapshot
from koordlet.protocol.cpuset import CPUSet, parse_cpulist
from koordlet.qos.cpu_usage import SubjectUsage, Usage, total

KUBE_DEPTH = 2
"""Levels of kubelet's and the runtime's cgroups below the BE directory: pods, containers."""

Tree = tuple[tuple[str, int], ...]
"""Cgroups with their level below the first, parents first."""


class Target(msgspec.Struct, frozen=True):
    """One top-level cgroup to limit. ``name`` is for people."""

    cgroup: str
    name: str
    is_kube: bool = False


def targets(snapshot: Snapshot) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """The BE QoS directory and every BE application that is present, none inside another.

    The second value says which applications are left alone, and why: one that holds
    latency-sensitive work too cannot be limited without limiting that work.
    """
    found: list[Target] = []
    refused: list[str] = []
    if snapshot.node.besteffort:
        found.append(Target(snapshot.node.besteffort, "kube best-effort pods", is_kube=True))
    best_effort = [a for a in snapshot.applications if a.present and a.is_best_effort]
    for app in sorted(best_effort, key=lambda a: a.cgroup):
        held = sensitive_inside(snapshot, app.cgroup)
        if not app.cgroup:
            refused.append(f"application {app.name}: the root cgroup cannot be limited")
        elif snapshot.node.besteffort.startswith(app.cgroup + "/"):
            refused.append(
                f"application {app.name}: cgroup {app.cgroup} is one of kubelet's, which holds the "
                "best-effort pods; they are limited without it"
            )
        elif held is not None:
            refused.append(
                f"application {app.name}: cgroup {app.cgroup} also holds {held}, which is "
                "latency sensitive; give the best-effort part a cgroup of its own"
            )
        elif not any(inside(app.cgroup, target.cgroup) for target in found):
            found.append(Target(app.cgroup, f"application {app.name}"))
    return tuple(found), tuple(refused)


def target_usage(subjects: Iterable[SubjectUsage], target: Target) -> Usage | None:
    """CPU used inside a target, from the last samples; None when nobody there has one."""
    found = total(subject for subject in subjects if inside(subject.cgroup, target.cgroup))
    return None if found.missing and not found.count else found


def walk(in_force: InForce, top: str) -> Tree:
    """``top`` and all that is below it."""
    found: list[tuple[str, int]] = [(top, 0)]
    for cgroup, level in found:
        found.extend((child, level + 1) for child in in_force.children(cgroup))
    return tuple(found)


def read_cpus(in_force: InForce, cgroup: str) -> CPUSet | None:
    """CPUs a cgroup may run on now; None when it cannot be told.

    An empty ``cpuset.cpus`` on v2 means "those of the parent", which the effective list tells.
    """
    return _cpus(in_force, cgroup, Resource.CPUSET_CPUS_EFFECTIVE) or read_own_cpus(
        in_force, cgroup
    )


def read_own_cpus(in_force: InForce, cgroup: str) -> CPUSet | None:
    """The list that was set for this cgroup; None when there is none."""
    return _cpus(in_force, cgroup, Resource.CPUSET_CPUS)


def _cpus(in_force: InForce, cgroup: str, resource: Resource) -> CPUSet | None:
    value = in_force.value(cgroup, resource)
    try:
        return parse_cpulist(value) or None if isinstance(value, str) else None
    except ValueError:
        return None
