"""Policy ``cfsQuota``: best-effort cgroups get a CPU quota (docs/reference/qos.md 2.6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from koordlet.decision.cgroups import inside, parent
from koordlet.decision.names import shown
from koordlet.decision.plan import Setting
from koordlet.decision.resource import CFS_PERIOD_US, MIN_QUOTA_US, UNLIMITED, Resource
from koordlet.decision.snapshot import Application, InForce, Pod, Snapshot
from koordlet.decision.why import Input, Why
from koordlet.qos.cpu_suppress.limit import (
    GROWTH_PER_S,
    RISE_WAIT_S,
    SMALL_RISE,
    Applied,
    Limit,
    ramp,
    settle,
)
from koordlet.qos.cpu_suppress.split import QuotaShare, demand, split
from koordlet.qos.cpu_suppress.targets import BestEffortGroup, target_usage, walk
from koordlet.qos.cpu_usage import usage_by_subject

LEAST_US = 2_000
"""What each target keeps. Quotas here are reckoned for ``CFS_PERIOD_US`` and converted to the
period in force when they are set."""
BAND, LONG_BAND = 0.01, 0.04
"""A change smaller than this share of the node is not worth a write. In long periods it costs more:
the kernel gives a whole quota anew at each write."""
LONG_PERIOD_US = 1_000_000
"""The longest that the kernel takes. Where BE comes back after a quota was used up, a running task
of LS may have to wait for one clock tick (docs/concepts/cpu-suppress.md): so, seldom."""


INNER_ANEW_S = 30.0
"""Quotas inside the best-effort directory are looked at again after this time. The kernel lets
nobody raise one above that of the directory, so what is known of them seldom grows old."""


class Inner(msgspec.Struct, frozen=True):
    """Quotas inside the best-effort directory, some hundred files, as they were at ``at``.
    ``quotas``: cgroup, quota before koordlet and period (us) of those that have one."""

    at: float
    pods: tuple[Pod, ...]
    applications: tuple[Application, ...]
    quotas: tuple[tuple[str, int, int], ...]


class Current(msgspec.Struct, frozen=True):
    """What a target's cgroup holds. ``quota_us`` is per ``CFS_PERIOD_US``, None = unlimited;
    ``ceiling_us`` is the tightest quota above it (v1 refuses a child with more)."""

    target: BestEffortGroup
    raw_us: int
    period_us: int
    quota_us: int | None
    ceiling_us: int | None


def apply(
    snapshot: Snapshot,
    targets: tuple[BestEffortGroup, ...],
    limit: Limit,
    shares: dict[str, QuotaShare],
    inner: Inner | None = None,
    period_us: int | None = None,
) -> tuple[Applied, dict[str, QuotaShare], Inner | None]:
    """Settings of the quota policy; for next time what each target was given, and the quotas
    inside the best-effort directory. ``period_us``: what the periods shall be; None: as they
    are."""
    found: list[Current] = []
    keep: list[tuple[str, Resource]] = []
    notes: list[Why] = []
    for target in targets:
        current = _read(snapshot.in_force, target)
        if current is not None:
            found.append(current)
            continue
        keep += ((target.cgroup, each) for each in (Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US))
        text = (
            f"{target.name}: no CPU quota can be read in cgroup {shown(target.cgroup)}; it stays "
            "as it is (on cgroup v2 its parent must list cpu in cgroup.subtree_control)"
        )
        notes.append(Why("cpu-suppress.no-quota", text))
    if not found:
        return Applied(None, keep=tuple(keep), notes=tuple(notes)), shares, inner

    node_us = math.ceil(snapshot.node.capacity_milli / 1000) * CFS_PERIOD_US
    step_us = node_us * GROWTH_PER_S
    wanted_us = max(limit.milli * CFS_PERIOD_US // 1000, LEAST_US * len(found))
    start_us = _start(limit, found)
    held_us = start_us if limit.level is not None or _all_ours(snapshot.in_force, found) else None
    goal_us, rise = settle(held_us, wanted_us, node_us * SMALL_RISE, limit.now, limit.rise)
    promised_us = limit.promised_milli * CFS_PERIOD_US // 1000
    floor_us = min(promised_us, wanted_us)
    goal_us = max(goal_us, floor_us)
    level = max(ramp(start_us, goal_us, step_us, limit.growth_s), floor_us)
    total_us = max(int(level), LEAST_US * len(found))
    exact, demands = _divide(snapshot, found, shares, total_us, step_us, limit.elapsed_s)
    least_us = min(promised_us, sum(exact))
    band_us = node_us * (BAND if period_us is None else LONG_BAND)
    values = _spare_writes(found, exact, least_us, total_us + node_us * BAND, band_us)

    given = {
        current.target.cgroup: QuotaShare(value, want)
        for current, value, want in zip(found, values, demands, strict=True)
    }
    settings = tuple(
        setting
        for current, value in zip(found, values, strict=True)
        for setting in _settings(current, value, total_us, wanted_us, goal_us, limit, period_us)
    )
    if snapshot.node.rules.quotas_nest:
        quotas: tuple[tuple[str, int, int], ...]
        for current, value in zip(found, values, strict=True):
            if current.target.is_kube:
                inner = _look_inside(snapshot, current, shares.get(current.target.cgroup), inner)
                quotas = inner.quotas
            else:
                quotas = tuple(_quotas(snapshot, current.target))
            settings += _lifted(quotas, current.target, value)
    cores = sum(values) / CFS_PERIOD_US
    return Applied(level, cores, settings, tuple(keep), tuple(notes), rise), given, inner


def _read(in_force: InForce, target: BestEffortGroup) -> Current | None:
    raw = in_force.value(target.cgroup, Resource.CPU_QUOTA_US)
    if not isinstance(raw, int):
        return None
    ceilings = []
    above = parent(target.cgroup)
    while above:
        quota = in_force.value(above, Resource.CPU_QUOTA_US)
        if isinstance(quota, int) and quota > 0:
            ceilings.append(quota * CFS_PERIOD_US // _period_us(in_force, above))
        above = parent(above)
    period_us = _period_us(in_force, target.cgroup)
    return Current(
        target,
        raw_us=raw,
        period_us=period_us,
        quota_us=raw * CFS_PERIOD_US // period_us if raw > 0 else None,
        ceiling_us=min(ceilings, default=None),
    )


def _period_us(in_force: InForce, cgroup: str) -> int:
    period = in_force.value(cgroup, Resource.CPU_PERIOD_US)
    return period if isinstance(period, int) and period > 0 else CFS_PERIOD_US


def _start(limit: Limit, found: list[Current]) -> float | None:
    """Where growth starts from. From unlimited there is no step (the limit comes at once)."""
    if limit.level is not None:
        return limit.level
    quotas = [current.quota_us for current in found]
    return sum(q for q in quotas if q is not None) if None not in quotas else None


def _all_ours(in_force: InForce, found: list[Current]) -> bool:
    """Whether an earlier run of koordlet left these quotas: they are taken over as they are."""
    return all(
        in_force.original(each.target.cgroup, Resource.CPU_QUOTA_US) != each.raw_us
        for each in found
    )


def _divide(
    snapshot: Snapshot,
    found: list[Current],
    shares: dict[str, QuotaShare],
    total_us: int,
    step_us: float,
    elapsed_s: float,
) -> tuple[list[int], list[float]]:
    """Quota and demand of each target. A lone one gets everything."""
    subjects = usage_by_subject(snapshot) if len(found) > 1 else ()
    demands: list[float] = []
    caps: list[int] = []
    for current in found:
        last = shares.get(current.target.cgroup)
        held_us = last.quota_us if last is not None else current.quota_us
        used = None if len(found) == 1 else target_usage(subjects, current.target)
        used_us = None if used is None else used.cores * CFS_PERIOD_US
        demands.append(demand(used_us, held_us, last, total_us, elapsed_s))
        grown = total_us if held_us is None or len(found) == 1 else held_us + step_us * elapsed_s
        ceiling_us = total_us if current.ceiling_us is None else current.ceiling_us
        caps.append(max(int(min(grown, total_us, ceiling_us)), LEAST_US))
    values = split(total_us, demands, caps, LEAST_US)
    return [
        value if current.ceiling_us is None else min(value, current.ceiling_us)
        for current, value in zip(found, values, strict=True)
    ], demands


def _spare_writes(
    found: list[Current], exact: list[int], least_us: int, most_us: float, band_us: float
) -> list[int]:
    """What the kernel holds already, where that is close enough and the sum stays within reach.

    The minimum of a target is always set exactly (2.6).
    """
    close = [
        current.quota_us
        if current.quota_us is not None
        and current.quota_us >= LEAST_US
        and abs(value - current.quota_us) < band_us
        and value != LEAST_US
        else value
        for current, value in zip(found, exact, strict=True)
    ]
    return close if least_us <= sum(close) < most_us else exact


def quota_for(
    snapshot: Snapshot, target: BestEffortGroup, cpus: int, why: Why
) -> tuple[Setting, ...]:
    """A quota of so many CPUs for a target that is limited by CPU lists otherwise."""
    current = _read(snapshot.in_force, target)
    if current is None:
        return ()
    value = cpus * CFS_PERIOD_US
    raw = cpus * current.period_us
    nest = snapshot.node.rules.quotas_nest
    lifted = _lifted(_quotas(snapshot, target), target, value) if nest else ()
    return (Setting(target.cgroup, Resource.CPU_QUOTA_US, raw, why), *lifted)


def _look_inside(
    snapshot: Snapshot, current: Current, last: QuotaShare | None, known: Inner | None
) -> Inner:
    """What is known, or a new look: when somebody came or went, at whole intervals, and when the
    directory does not hold what it was given, since the kernel may have refused it for a quota
    inside that is not known."""
    if (
        known is not None
        and known.pods is snapshot.pods
        and known.applications is snapshot.applications
        and snapshot.now // INNER_ANEW_S == known.at // INNER_ANEW_S
        and last is not None
        and current.quota_us is not None
        and abs(current.quota_us - last.quota_us) <= MIN_QUOTA_US
    ):
        return known
    found = tuple(_quotas(snapshot, current.target))
    return Inner(snapshot.now, snapshot.pods, snapshot.applications, found)


def _quotas(snapshot: Snapshot, target: BestEffortGroup) -> Iterator[tuple[str, int, int]]:
    """Cgroup, own quota and period of each cgroup inside that has a quota of its own."""
    in_force = snapshot.in_force
    for cgroup in _within(snapshot, target):
        own = in_force.original(cgroup, Resource.CPU_QUOTA_US)
        if isinstance(own, int) and own > 0:
            yield cgroup, own, _period_us(in_force, cgroup)


def _lifted(
    quotas: Iterable[tuple[str, int, int]], target: BestEffortGroup, value: int
) -> tuple[Setting, ...]:
    """Cgroups inside that have a larger quota of their own: v1 refuses the target's below it.

    None of them could use its own, so lifting it changes nothing, and need not follow the
    target's as a copy of it would. It goes back once the target has as much.
    """
    found = []
    for cgroup, own, period_us in quotas:
        if own * CFS_PERIOD_US > value * period_us:
            text = (
                f"its quota of {own / period_us:.2f} cores is out of reach inside {target.name}, "
                f"which gets {value / CFS_PERIOD_US:.2f}; cgroup v1 refuses a quota below one "
                "inside, so this one is lifted until there is room for it"
            )
            why = Why("cpu-suppress.lifted", text)
            found.append(Setting(cgroup, Resource.CPU_QUOTA_US, UNLIMITED, why))
    return tuple(found)


def _within(snapshot: Snapshot, target: BestEffortGroup) -> Iterator[str]:
    """Below an application whatever there is, in the best-effort directory pods and containers:
    there may be hundreds, and listing directories costs more than all the rest."""
    if not target.is_kube:
        yield from (cgroup for cgroup, level in walk(snapshot.in_force, target.cgroup) if level)
        return
    for pod in snapshot.pods:
        if inside(pod.cgroup, target.cgroup):
            yield pod.cgroup
            yield from (container.cgroup for container in pod.containers)
    for app in snapshot.applications:
        if app.present and app.cgroup != target.cgroup and inside(app.cgroup, target.cgroup):
            yield from (cgroup for cgroup, _ in walk(snapshot.in_force, app.cgroup))


def _settings(
    current: Current,
    value: int,
    total_us: int,
    wanted_us: int,
    goal_us: float,
    limit: Limit,
    period_us: int | None,
) -> Iterator[Setting]:
    target = current.target
    text = f"{limit.text}; {target.name} gets {value / CFS_PERIOD_US:.2f} cores"
    if goal_us < wanted_us:
        text += (
            f" (the limit is at {total_us / CFS_PERIOD_US:.2f}; a rise below {SMALL_RISE:.0%} of "
            f"the node must persist for {RISE_WAIT_S:g} s)"
        )
    elif total_us < wanted_us:
        text += (
            f" (the limit is at {total_us / CFS_PERIOD_US:.2f} and grows by at most "
            f"{GROWTH_PER_S:.0%} of the node per second)"
        )
    period = period_us or current.period_us
    if current.quota_us == value and period == current.period_us:
        raw_us = current.raw_us
    else:
        raw_us = max(value * period // CFS_PERIOD_US, MIN_QUOTA_US)
    before = UNLIMITED if current.quota_us is None else current.raw_us
    facts = (
        *limit.inputs,
        Input("limit of all BE", total_us, "us per 100 ms"),
        Input("quota before", before, "us"),
    )
    why = Why("cpu-suppress.quota", text, facts)
    if period_us is not None:
        yield Setting(target.cgroup, Resource.CPU_PERIOD_US, period_us, why)
    yield Setting(target.cgroup, Resource.CPU_QUOTA_US, raw_us, why)
