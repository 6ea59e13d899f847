"""Values that the makers of a pod's cgroups write again by right: no second writer. Pure.

kubelet tells systemd the weight of its slices once a minute and with each pod, and systemd then
writes every file of every controller that it knows for that unit: limits that it was not told of
become none. kubelet 1.37 writes ``memory.min`` and ``memory.low`` of 0 with each resize, or
amounts that follow from requests, and a runtime sets up what it has just made, which systemd does
once more. They write what a new cgroup has, or what stood there before koordlet, and stop; ours is
written again at once, within a budget, beyond which it is a conflict like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from koordlet.decision.resource import CFS_PERIOD_US, MIN_SHARES, UNLIMITED, Resource, Value
from koordlet.kernel.cgroup.conversions import weight_to_shares
from koordlet.kernel.cgroup.kubepods import is_below_root, is_in_pod

SETTLES_S = 10.0
"""Seconds after our first write in which whoever makes the cgroup may still be at work."""
BURST = 30
PER_S = 1.0
"""Rewrites of one file that are answered at once: so many together, and so many a second. 20 pods
that come and go in a minute cause 40 of a slice."""

AMOUNT_COST = 10.0
"""Share of the budget that an amount takes that kubelet may have worked out: resizes are rare, and
who writes amounts more often is a second writer."""

AMOUNTS = frozenset((Resource.MEMORY_MIN, Resource.MEMORY_LOW, Resource.MEMORY_HIGH))
"""Written by kubelet's own memory QoS, from the requests and limits of pods."""

NEW: Mapping[Resource, tuple[Value, ...]] = {
    Resource.CPU_SHARES: (1024, weight_to_shares(100), MIN_SHARES),
    Resource.CPU_QUOTA_US: (UNLIMITED,),
    Resource.CPU_PERIOD_US: (CFS_PERIOD_US,),
    Resource.CPU_BURST_US: (0,),
    Resource.CPU_IDLE: (0,),
    Resource.CPUSET_CPUS: ("",),
    Resource.CPUSET_MEMS: ("",),
    Resource.MEMORY_LIMIT: (UNLIMITED,),
    Resource.MEMORY_HIGH: (UNLIMITED,),
    Resource.MEMORY_LOW: (0,),
    Resource.MEMORY_MIN: (0,),
    Resource.MEMORY_OOM_GROUP: (0, 1),
}
"""Resource -> what a new cgroup has; of ``memory.oom.group`` also what kubelet (1.28) asks for, and
of shares what a container that requests nothing gets with the first resize of its pod."""


class Budget(NamedTuple):
    """Rewrites of one file that may still be answered at once, as of ``now``."""

    left: float = BURST
    now: float = 0.0


def after_one(budget: Budget | None, now: float, cost: float = 1.0) -> Budget | None:
    """The budget after one more rewrite; None where there is none left."""
    before = budget or Budget(now=now)
    left = min(BURST, before.left + (now - before.now) * PER_S) - cost
    return Budget(left, now) if left >= 0 else None


def cost(
    cgroup: str, resource: Resource, found: Value, known: Collection[Value | None], age_s: float
) -> float | None:
    """Return the share of the budget that an answer to ``found`` takes; None where kubelet, systemd
    or a runtime cannot be expected to write that there. ``known``: what the file held before us,
    and what it would hold without us. ``age_s``: seconds since our first write."""
    if not is_below_root(cgroup) or resource not in NEW:
        return None
    settles = age_s < SETTLES_S and is_in_pod(cgroup)
    if settles or found in known or found in NEW[resource]:
        return 1.0
    return AMOUNT_COST if resource in AMOUNTS and is_in_pod(cgroup) else None
