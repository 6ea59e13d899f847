"""Limits of a container whose runtime keeps them in two cgroups, one inside the other (crun under
the systemd driver): what is wanted for the outer one is wanted for the inner one too. Where the
kernel takes the smaller of both, raising one alone has no effect; a floor holds where all above
have one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from koordlet.decision.plan import Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod

BOTH = frozenset(
    {
        *(Resource.CPU_PERIOD_US, Resource.CPU_QUOTA_US, Resource.CPU_BURST_US),
        *(Resource.CPUSET_CPUS, Resource.CPUSET_MEMS),
        *(Resource.MEMORY_LIMIT, Resource.MEMORY_HIGH, Resource.MEMORY_LOW, Resource.MEMORY_MIN),
        Resource.MEMORY_OOM_GROUP,
    }
)


def inner_cgroups(pods: Iterable[Pod]) -> dict[str, str]:
    """Cgroup of a container -> the one inside, of those that have one."""
    containers = chain.from_iterable(pod.containers for pod in pods)
    return {each.cgroup: each.inner for each in containers if each.inner}


def with_inner(plan: Plan, inner: Mapping[str, str]) -> Plan:
    """``plan`` for both cgroups."""
    if not inner:
        return plan
    settings = tuple(
        msgspec.structs.replace(each, cgroup=inner[each.cgroup])
        for each in plan.settings
        if each.resource in BOTH and each.cgroup in inner
    )
    keep = tuple(
        (inner[cgroup], resource)
        for cgroup, resource in plan.keep
        if resource in BOTH and cgroup in inner
    )
    if not settings and not keep:
        return plan
    return msgspec.structs.replace(
        plan, settings=(*plan.settings, *settings), keep=(*plan.keep, *keep)
    )
