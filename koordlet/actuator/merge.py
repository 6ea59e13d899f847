"""One value per cgroup file out of what several owners want: one table, resource -> rule.

The reference has no arbiter: its writers are independent loops and the last one wins
(docs/reference/qos.md 9, quirk 49). Here each resource has a rule that does not depend on who
asked last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from koordlet.decision.cgroups import parent
from koordlet.decision.plan import Setting
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.protocol.cpuset import format_cpulist, parse_cpulist


class Key(NamedTuple):
    """One file as plans name it."""

    cgroup: str
    resource: Resource


class Claim(NamedTuple):
    """What ``owner`` wants. Not ``active``: it cannot decide now, and the value stays as it is."""

    owner: str
    setting: Setting
    active: bool = True


class Rule(StrEnum):
    INTERSECTION = "intersection"
    """CPU list: the intersection; if that is empty, the list of the first owner by rank."""
    SMALLEST = "smallest"
    """The tightest limit; unlimited only when nobody limits. What raises that very limit
    (``Setting.raises``) takes its place."""
    LARGEST = "largest"
    """The strongest protection."""
    RANK = "rank"
    """No order between the values says which is safer: the first owner by rank."""


RULES: Mapping[Resource, Rule] = {
    Resource.CPUSET_CPUS: Rule.INTERSECTION,
    Resource.CPUSET_MEMS: Rule.INTERSECTION,
    Resource.CPU_QUOTA_US: Rule.SMALLEST,
    Resource.CPU_PERIOD_US: Rule.RANK,
    Resource.CPU_BURST_US: Rule.SMALLEST,
    Resource.CPU_SHARES: Rule.RANK,
    Resource.CPU_IDLE: Rule.RANK,
    Resource.CPU_BVT_WARP_NS: Rule.RANK,
    Resource.MEMORY_LIMIT: Rule.SMALLEST,
    Resource.MEMORY_HIGH: Rule.SMALLEST,
    Resource.MEMORY_MIN: Rule.LARGEST,
    Resource.MEMORY_LOW: Rule.LARGEST,
    Resource.MEMORY_WMARK_RATIO: Rule.RANK,
    Resource.MEMORY_WMARK_SCALE_FACTOR: Rule.RANK,
    Resource.MEMORY_WMARK_MIN_ADJ: Rule.RANK,
    Resource.MEMORY_PRIORITY: Rule.RANK,
    Resource.MEMORY_USE_PRIORITY_OOM: Rule.RANK,
    Resource.MEMORY_OOM_GROUP: Rule.RANK,
    Resource.MEMORY_PAGECACHE_LIMIT_ENABLE: Rule.RANK,
    Resource.MEMORY_PAGECACHE_LIMIT_SIZE: Rule.SMALLEST,
    Resource.MEMORY_PAGECACHE_LIMIT_SYNC: Rule.RANK,
    Resource.BLKIO_READ_IOPS: Rule.RANK,
    Resource.BLKIO_READ_BPS: Rule.RANK,
    Resource.BLKIO_WRITE_IOPS: Rule.RANK,
    Resource.BLKIO_WRITE_BPS: Rule.RANK,
    Resource.BLKIO_COST_WEIGHT: Rule.RANK,
    Resource.BLKIO_BFQ_WEIGHT: Rule.RANK,
    Resource.BLKIO_COST_QOS: Rule.RANK,
    Resource.BLKIO_COST_MODEL: Rule.RANK,
    Resource.NET_CLS_CLASSID: Rule.RANK,
    Resource.FREEZE: Rule.RANK,
    Resource.OOM_SCORE_ADJ: Rule.RANK,
    Resource.CORE_SCHED_GROUP: Rule.RANK,
    Resource.RESCTRL_GROUP: Rule.RANK,
    Resource.RESCTRL_MONITOR: Rule.RANK,
    Resource.CPU_SPREAD: Rule.RANK,
    Resource.RESCTRL_SCHEMATA: Rule.RANK,
    Resource.RESCTRL_MONITOR_GROUP: Rule.RANK,
    Resource.SYSCTL_GROUP_IDENTITY: Rule.RANK,
    Resource.SYSCTL_SCHED_CORE: Rule.RANK,
    Resource.SYSCTL_SCHED_IDLE_SAVER_WMARK: Rule.RANK,
    Resource.SYSCTL_MIN_FREE_KBYTES: Rule.RANK,
    Resource.SYSCTL_WATERMARK_SCALE_FACTOR: Rule.RANK,
    Resource.MEMCG_REAP_BACKGROUND: Rule.RANK,
    Resource.KIDLED_SCAN_PERIOD: Rule.RANK,
    Resource.KIDLED_USE_HIERARCHY: Rule.RANK,
    Resource.PAGECACHE_LIMIT_ENABLED: Rule.RANK,
    Resource.SCHED_FEATURES: Rule.RANK,
    Resource.TERWAY_GLOBAL: Rule.RANK,
    Resource.TERWAY_PODS: Rule.RANK,
}
"""The resources that can be set. The rest is read-only, or moves processes (``tasks``,
``cgroup.procs``), which no original can undo."""


class Loss(NamedTuple):
    """A claim that did not get its value, and why."""

    claim: Claim
    text: str


@dataclass(frozen=True)
class Merged:
    """``agreed`` got their value; ``owner`` is the first of them.

    Where the value is nobody's own (an intersection), the first owner by rank stands for it.
    ``active`` is False when every claim only asks to leave things as they are.
    """

    value: Value
    owner: str
    why: Why
    active: bool
    agreed: tuple[Claim, ...]
    losses: tuple[Loss, ...]

    @property
    def without(self) -> Value | None:
        """See ``Setting``."""
        values = (claim.setting.without for claim in self.agreed)
        return next((value for value in values if value is not None), None)


def merge(claims: Sequence[Claim], ranks: Mapping[str, int]) -> Merged:
    """Merge the claims on one file; the result does not depend on their order.

    ``ranks``: owner -> rank, the smallest first; owners without one come last, by name.
    ``claims`` holds at least one, each valid for its resource, one per owner.
    """
    if len(claims) == 1:
        only = claims[0]
        value = _canonical(RULES[only.setting.resource], only.setting.value)
        return Merged(value, only.owner, only.setting.why, only.active, (only,), ())
    last = len(ranks)
    ordered = sorted(claims, key=lambda claim: (ranks.get(claim.owner, last), claim.owner))
    rule = RULES[ordered[0].setting.resource]
    value, reason = _DECIDE[rule](ordered)
    same = [c for c in ordered if _canonical(rule, c.setting.value) == value]
    agreed = tuple(same) or (ordered[0],)
    winner = agreed[0]
    if len(same) == len(ordered):
        why = winner.setting.why
    else:
        wants = "; ".join(f"{c.owner} wants {c.setting.value}" for c in ordered)
        why = Why(
            winner.setting.why.rule,
            f"{winner.setting.why.text} ({wants}: {reason})",
            winner.setting.why.inputs,
        )
    return Merged(
        value=value,
        owner=winner.owner,
        why=why,
        active=any(claim.active for claim in ordered),
        agreed=agreed,
        losses=tuple(
            Loss(claim, f"{claim.owner} wanted {claim.setting.value}, got {value}: {reason}")
            for claim in ordered
            if claim not in agreed
        ),
    )


def bound_protection(targets: dict[Key, Merged], memory_bytes: int) -> None:
    """Scale memory.min and memory.low down, in place, where they promise more than there is.

    Only cgroups without a protected ancestor count: the kernel gives those below them no more
    than a share of that. One that is only kept falls with the others: they all promise the same
    memory.
    """
    for resource in (Resource.MEMORY_MIN, Resource.MEMORY_LOW):
        amounts = {
            key: memory_bytes if merged.value == UNLIMITED else int(merged.value)
            for key, merged in targets.items()
            if key.resource is resource
        }
        tops = [
            key
            for key in amounts
            if not any(Key(each, resource) in amounts for each in ancestors(key.cgroup))
        ]
        total = sum(amounts[key] for key in tops)
        if total <= memory_bytes:
            continue
        for key in tops:
            merged = targets[key]
            value = amounts[key] * memory_bytes // total // PAGE_BYTES * PAGE_BYTES
            text = (
                f"{merged.why.text} (scaled down from {merged.value}: the sum exceeds the node's "
                "memory)"
            )
            why = Why(merged.why.rule, text, merged.why.inputs)
            targets[key] = replace(merged, value=value, why=why, active=True)


def within_quota(burst: Merged, quota: Merged | None) -> Merged:
    """``burst`` at most as large as what becomes of the quota of the same cgroup: the kernel takes
    no burst above its quota, and no quota below its burst (Linux ``sched-bwc.rst``). So one that
    is only kept falls with the quota, too."""
    if quota is None or quota.value == UNLIMITED or int(burst.value) <= int(quota.value):
        return burst
    text = f"{burst.why.text} (at most the quota that {quota.owner} sets, {quota.value} us)"
    why = Why(burst.why.rule, text, burst.why.inputs)
    return replace(burst, value=quota.value, why=why, active=True)


def ancestors(cgroup: str) -> Iterator[str]:
    """The parent, its parent, up to the root ``""``."""
    while cgroup:
        cgroup = parent(cgroup)
        yield cgroup


def _canonical(rule: Rule, value: Value) -> Value:
    if rule is Rule.INTERSECTION:
        return format_cpulist(parse_cpulist(str(value)))
    return value


def _intersection(ordered: Sequence[Claim]) -> tuple[Value, str]:
    sets = [parse_cpulist(str(claim.setting.value)) for claim in ordered]
    common = frozenset.intersection(*sets)
    if common:
        return format_cpulist(common), "the CPUs that all of them allow"
    first = ordered[0].owner
    return format_cpulist(
        sets[0]
    ), f"they have no CPU in common, so {first}, which ranks first, wins"


def _smallest(ordered: Sequence[Claim]) -> tuple[Value, str]:
    firm = [c for c in ordered if c.setting.raises is None]
    limit = _tightest(firm or ordered)
    raised = [c for c in ordered if c.setting.raises == limit] if firm else []
    if raised:
        return _tightest(raised), f"{raised[0].owner} raises {limit}"
    return limit, "the tightest limit wins"


def _tightest(claims: Sequence[Claim]) -> Value:
    limits = [value for claim in claims if (value := claim.setting.value) != UNLIMITED]
    return min(limits, key=int, default=UNLIMITED)


def _largest(ordered: Sequence[Claim]) -> tuple[Value, str]:
    values = [claim.setting.value for claim in ordered]
    if UNLIMITED in values:
        return UNLIMITED, "the strongest protection wins"
    return max(values, key=int), "the strongest protection wins"


def _rank(ordered: Sequence[Claim]) -> tuple[Value, str]:
    return ordered[0].setting.value, f"{ordered[0].owner} ranks first"


_DECIDE = {
    Rule.INTERSECTION: _intersection,
    Rule.SMALLEST: _smallest,
    Rule.LARGEST: _largest,
    Rule.RANK: _rank,
}
