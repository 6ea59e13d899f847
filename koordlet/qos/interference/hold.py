"""A best-effort antagonist alone gets less CPU: halved while it disturbs, then half as much again
every few seconds until it has what it used before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
from koordlet.qos.interference.titles import title, waits_for
from koordlet.qos.interference.windows import Antagonist, Who

LEAST_CORES = 0.05
"""Who uses no more than this is left alone."""
STEP_S = 5.0
"""Between two steps in either direction: what a step did must be seen first."""
_USE_S = 10.0
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
"""The kernel takes no less."""


class Held(msgspec.Struct, frozen=True):
    """A cgroup with a limit of ours. ``used_cores``: what it used before. ``stepped``: when the
    limit changed last (as ``Snapshot.now``). ``cause``: what the last cut was for."""

    cores: float
    used_cores: float
    stepped: float
    cause: Antagonist


class Target(NamedTuple):
    """A cgroup that can be limited, and where its use is."""

    cgroup: str
    use: Metric
    label: str


def targets_of(snapshot: Snapshot, who: Who) -> Iterator[Target]:
    """Those of a best-effort pod or application: containers, because a pod's limit may not be below
    theirs on cgroup v1. Nothing for others."""
    for pod in snapshot.pods if who.kind == "pod" else ():
        if pod.uid == who.name and pod.is_best_effort:
            for container in pod.containers:
                if not container.is_sandbox:
                    yield Target(container.cgroup, CONTAINER_CPU_USAGE, container.id)
    for app in snapshot.applications if who.kind == "application" else ():
        if app.name == who.name and app.is_best_effort and app.present:
            yield Target(app.cgroup, HOST_APPLICATION_CPU_USAGE, app.name)


def hold(
    snapshot: Snapshot, held: Mapping[str, Held], antagonists: Collection[Antagonist]
) -> dict[str, Held]:
    """The limits from now on. One begins, and is cut again, when a new window shows that a victim
    suffers. It stays as it is for as long as its cgroup belongs to an antagonist, then grows."""
    after: dict[str, Held] = {}
    present = set()
    for culprit in sorted({each.culprit for each in antagonists}):
        harms = [each for each in antagonists if each.culprit == culprit and each.harms]
        for target in targets_of(snapshot, culprit):
            present.add(target.cgroup)
            limit = held.get(target.cgroup)
            if harms:
                limit = _cut(snapshot, target, limit, max(harms, key=lambda each: each.share))
            if limit is not None:
                after[target.cgroup] = limit
    for cgroup in sorted(held.keys() - present):
        limit = _grown(held[cgroup], snapshot.now)
        if limit is not None:
            after[cgroup] = limit
    return after


def _cut(snapshot: Snapshot, target: Target, before: Held | None, cause: Antagonist) -> Held | None:
    """Half of what it may use now, or of what it uses. As before while the last step is fresh, or
    where its use is too little or not known."""
    if before is not None:
        if snapshot.now - before.stepped < STEP_S:
            return before
        cores, used_cores = before.cores, before.used_cores
    else:
        use = snapshot.metrics.read(
            target.use, (target.label,), window_s=_USE_S, aggregate=Aggregate.MAX
        )
        if use is None or use.value <= LEAST_CORES:
            return None
        cores = used_cores = use.value
    return Held(max(cores / 2, LEAST_CORES), used_cores, snapshot.now, cause)


def _grown(before: Held, now: float) -> Held | None:
    """None: it has again what it used."""
    if now - before.stepped < STEP_S:
        return before
    cores = before.cores * 1.5
    if cores >= before.used_cores:
        return None
    return Held(cores, before.used_cores, now, before.cause)


def settings(snapshot: Snapshot, owner: str, held: Mapping[str, Held]) -> Iterator[Setting]:
    """Never above the limit that a cgroup has anyway."""
    for cgroup, limit in sorted(held.items()):
        period = snapshot.in_force.value(cgroup, Resource.CPU_PERIOD_US)
        if period is None:  # gone
            continue
        period_us = period if isinstance(period, int) and period > 0 else _PERIOD_US
        quota_us = max(round(limit.cores * period_us), _LEAST_QUOTA_US)
        own = snapshot.in_force.without(owner, cgroup, Resource.CPU_QUOTA_US)
        if isinstance(own, int) and 0 < own <= quota_us:
            continue
        yield Setting(cgroup, Resource.CPU_QUOTA_US, quota_us, _why(snapshot, limit))


def _why(snapshot: Snapshot, limit: Held) -> Why:
    cause = limit.cause
    return Why(
        "interference.hold",
        f"because of it {title(snapshot, cause.victim)} {waits_for(cause.resource)}: "
        f"{limit.cores:.2f} cores for now",
        (
            Input("used before", limit.used_cores, "cores"),
            Input("correlation" if cause.resource == "cpi" else "blame", round(cause.share, 4)),
        ),
    )
