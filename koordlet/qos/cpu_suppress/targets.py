"""Where best-effort work lives: the cgroups that CPU suppress limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from koordlet.decision.cgroups import inside, sensitive_inside
from koordlet.decision.names import shown
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce, Snapshot
from koordlet.decision.why import Why
from koordlet.protocol.cpuset import CPUSet, parse_cpulist
from koordlet.qos.cpu_usage import SubjectUsage, Usage, total

KUBE_DEPTH = 2
"""Levels of kubelet's and the runtime's cgroups below the BE directory: pods, containers."""

Tree = tuple[tuple[str, int], ...]
"""Cgroups with their level below the first, parents first."""
LARGEST_TREE = 256
"""Most cgroups looked at inside a container or application, which may create thousands."""


class BestEffortGroup(msgspec.Struct, frozen=True):
    """One top-level cgroup to limit. ``name`` is for people."""

    cgroup: str
    name: str
    is_kube: bool = False


def targets(snapshot: Snapshot) -> tuple[tuple[BestEffortGroup, ...], tuple[str, ...]]:
    """The BE QoS directory and every BE application that is present, none inside another.

    The second value says which applications are left alone, and why: one that holds
    latency-sensitive work too cannot be limited without limiting that work.
    """
    found: list[BestEffortGroup] = []
    refused: list[str] = []
    if snapshot.node.tree.besteffort:
        found.append(
            BestEffortGroup(snapshot.node.tree.besteffort, "kube best-effort pods", is_kube=True)
        )
    best_effort = [a for a in snapshot.applications if a.present and a.is_best_effort]
    for app in sorted(best_effort, key=lambda a: a.cgroup):
        held = sensitive_inside(snapshot, app.cgroup)
        if not app.cgroup:
            refused.append(f"application {app.name}: the root cgroup cannot be limited")
        elif snapshot.node.tree.besteffort.startswith(app.cgroup + "/"):
            refused.append(
                f"application {app.name}: cgroup {shown(app.cgroup)} belongs to kubelet and "
                "contains the best-effort pods, which are limited anyway"
            )
        elif held is not None:
            refused.append(
                f"application {app.name}: cgroup {shown(app.cgroup)} also contains {shown(held)}, "
                "which is latency-sensitive; give the best-effort part a cgroup of its own"
            )
        elif not any(inside(app.cgroup, target.cgroup) for target in found):
            found.append(BestEffortGroup(app.cgroup, f"application {app.name}"))
    return tuple(found), tuple(refused)


def target_usage(subjects: Iterable[SubjectUsage], target: BestEffortGroup) -> Usage | None:
    """CPU used inside a target, from the last samples; None when nobody there has one."""
    found = total(subject for subject in subjects if inside(subject.cgroup, target.cgroup))
    return None if found.missing and not found.count else found


def walk(in_force: InForce, top: str) -> Tree:
    """``top`` and what is below it, the upper ones first; ``LARGEST_TREE`` of them at most."""
    found: list[tuple[str, int]] = [(top, 0)]
    for cgroup, level in found:
        below = ((child, level + 1) for child in in_force.children(cgroup))
        found.extend(islice(below, LARGEST_TREE - len(found)))
        if len(found) >= LARGEST_TREE:
            break
    return tuple(found)


def crowd(rule: str, cgroup: str, count: int) -> Iterator[Why]:
    """A note where ``walk`` found ``count`` cgroups and may have left others out."""
    if count >= LARGEST_TREE:
        text = (
            f"only {LARGEST_TREE} cgroups in {shown(cgroup)} are managed; the others are left out"
        )
        yield Why(rule, text)


def inner(snapshot: Snapshot, target: BestEffortGroup) -> Tree:
    """The target, and the pods and containers in it that are known and there."""
    in_force, found = snapshot.in_force, [(target.cgroup, 0)]
    if not target.is_kube:
        return tuple(found)
    there = set(in_force.children(target.cgroup))
    for pod in snapshot.pods:
        if pod.cgroup not in there:
            continue
        found.append((pod.cgroup, 1))
        below = set(in_force.children(pod.cgroup))
        found.extend((each.cgroup, 2) for each in pod.containers if each.cgroup in below)
    return tuple(found)


def read_cpus(in_force: InForce, cgroup: str) -> CPUSet | None:
    """CPUs a cgroup may run on now; None when it cannot be told.

    An empty ``cpuset.cpus`` on v2 means "those of the parent", which the effective list tells.
    """
    effective = _cpus(in_force, cgroup, Resource.CPUSET_CPUS_EFFECTIVE)
    return effective or _cpus(in_force, cgroup, Resource.CPUSET_CPUS)


def _cpus(in_force: InForce, cgroup: str, resource: Resource) -> CPUSet | None:
    value = in_force.value(cgroup, resource)
    try:
        return parse_cpulist(value) or None if isinstance(value, str) else None
    except ValueError:
        return None
