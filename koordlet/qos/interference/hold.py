"""A best-effort antagonist alone gets less CPU: halved while it disturbs, then half as much again
every few seconds until it has what it used before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from koordlet.decision.metrics import (
    CONTAINER_CPU_USAGE,
    HOST_APPLICATION_CPU_USAGE,
    Aggregate,
    Metric,
)
from koordlet.decision.plan import Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.why import Input, Why
from koordlet.qos.interference.windows import Who

LEAST_CORES = 0.05
STEP_S = 5.0
"""Between two steps in either direction: what a step did must be seen first."""
_USE_S = 10.0
_PERIOD_US = 100_000


class Held(msgspec.Struct, frozen=True):
    """A cgroup with a limit of ours. ``used_cores``: what it used before. ``stepped``: when the
    limit changed last (as ``Snapshot.now``)."""

    cores: float
    used_cores: float
    stepped: float


def cgroups_of(snapshot: Snapshot, who: Who) -> Iterator[tuple[str, Metric, str]]:
    """Those of a best-effort pod or application that are limited, with where their use is told:
    containers, because a pod's limit may not be below theirs on cgroup v1. Nothing for others."""
    for pod in snapshot.pods if who.kind == "pod" else ():
        if pod.uid == who.name and pod.is_best_effort:
            for container in pod.containers:
                if not container.is_sandbox:
                    yield container.cgroup, CONTAINER_CPU_USAGE, container.id
    for app in snapshot.applications if who.kind == "application" else ():
        if app.name == who.name and app.is_best_effort and app.present:
            yield app.cgroup, HOST_APPLICATION_CPU_USAGE, app.name


class Antagonist(NamedTuple):
    """``harms``: a victim of it suffers now. ``goes_on``: its last window was bad."""

    who: Who
    harms: bool = False
    goes_on: bool = False


def hold(
    snapshot: Snapshot, held: Mapping[str, Held], antagonists: Iterable[Antagonist]
) -> dict[str, Held]:
    """The limits from now on. One begins when a victim suffers, and is there for as long as its
    cgroup belongs to an antagonist."""
    after: dict[str, Held] = {}
    present = set()
    for who, harms, goes_on in antagonists:
        for cgroup, metric, label in cgroups_of(snapshot, who):
            before = held.get(cgroup)
            if before is None and not harms:
                continue
            present.add(cgroup)
            if before is None:
                use = snapshot.metrics.read(
                    metric, (label,), window_s=_USE_S, aggregate=Aggregate.MAX
                )
                used = max(use.value if use is not None else 0.0, LEAST_CORES)
                after[cgroup] = Held(max(used / 2, LEAST_CORES), used, snapshot.now)
            elif goes_on and snapshot.now - before.stepped >= STEP_S:
                after[cgroup] = Held(
                    max(before.cores / 2, LEAST_CORES), before.used_cores, snapshot.now
                )
            else:
                after[cgroup] = before
    for cgroup, before in held.items():
        if cgroup in present:
            continue
        if snapshot.now - before.stepped < STEP_S:
            after[cgroup] = before
        elif before.cores * 1.5 < before.used_cores:
            after[cgroup] = Held(before.cores * 1.5, before.used_cores, snapshot.now)
    return after


def settings(snapshot: Snapshot, held: Mapping[str, Held]) -> Iterator[Setting]:
    for cgroup, limit in sorted(held.items()):
        period = snapshot.in_force.value(cgroup, Resource.CPU_PERIOD_US)
        if period is None:  # gone
            continue
        period_us = period if isinstance(period, int) and period > 0 else _PERIOD_US
        why = Why(
            "interference.hold",
            f"it makes latency-sensitive work wait: {limit.cores:.2f} cores for now",
            (Input("used before", limit.used_cores, "cores"),),
        )
        quota_us = max(round(limit.cores * period_us), 1000)
        yield Setting(cgroup, Resource.CPU_QUOTA_US, quota_us, why)
