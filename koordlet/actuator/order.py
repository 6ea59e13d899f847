"""The order of coupled writes: pure, changes in, steps out.

What the kernel couples (measured on Linux 6.18, checked by ``tests/actuator``):

- cgroup v1 ``cpuset``: a child stays inside its parent (EACCES), a parent does not shrink below
  a child (EBUSY).
- cgroup v1 quota: quota/period of a group is at most that of its nearest limited ancestor
  (EINVAL both ways). An unlimited group is always valid.
- ``burst`` is at most ``quota`` (EINVAL both ways) unless the quota is unlimited.
- Group identities and core scheduling exclude each other
(docs/reference/hooks.md 2.1, 2.5): one is given
  up and switched off before the other is switched on and given out.
- A resctrl group is made before tasks enter it, and removed after they left. A monitor group takes
  tasks of its control group alone, so they enter that first; when it is removed, the kernel leaves
  them in their control group.
- ``cpu.idle=1`` locks the shares (EINVAL); going back to 0 resets them to the default.

Hence two passes: what grows goes parent before child, then what shrinks goes child before parent.
After each step every group holds its old value, its new one, or the union of both, and each pair
of parent and child is valid whenever the old and the new tree are. A CPU list that moves sideways
(neither a subset of the other) takes the union in the first pass. cgroup v2 accepts any order for
cpusets and quotas; the same order is used there, so that a child is never wider than its parent
in between.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from koordlet.actuator.merge import ancestors
from koordlet.decision.resource import ABSENT, UNLIMITED, Resource, Value
from koordlet.kernel.cgroup.conversions import weight_to_shares
from koordlet.kernel.resctrl import MADE
from koordlet.protocol.cpuset import CPUSet, format_cpulist, parse_cpulist


class Change(NamedTuple):
    """``old`` is what the kernel holds, ``new`` what it shall hold."""

    cgroup: str
    resource: Resource
    old: Value
    new: Value


class Step(NamedTuple):
    """One write. ``last`` is False where a further step for the same file follows.

    ``old``: of a step that means nothing without the others of its cgroup that have one, what the
    file held before all of them. When one of them is refused, the others go back.
    """

    cgroup: str
    resource: Resource
    value: Value
    last: bool = True
    old: Value | None = None


LOCKS: Mapping[Resource, tuple[Resource, ...]] = {Resource.CPU_IDLE: (Resource.CPU_SHARES,)}
"""Coupled originals: while the key is 1 the files listed cannot be written, and leaving it resets
them. So their originals are journaled together with the key's, and restored after it."""

RESET_TO_V1: Mapping[Resource, Value] = {Resource.CPU_SHARES: 1024}
RESET_TO_V2: Mapping[Resource, Value] = {Resource.CPU_SHARES: weight_to_shares(100)}
"""What a lock leaves in a file when it goes off (``sched_group_set_idle`` in kernel/sched/fair.c
sets NICE_0_LOAD)."""

# The order inside one cgroup while growing; shrinking is the reverse. A limit rises before what
# must fit below it.
_TREE = (
    Resource.CPUSET_MEMS,
    Resource.CPUSET_CPUS,
    Resource.CPU_PERIOD_US,
    Resource.CPU_QUOTA_US,
    Resource.CPU_BURST_US,
    Resource.MEMORY_LIMIT,
    Resource.MEMORY_HIGH,
    Resource.MEMORY_LOW,
    Resource.MEMORY_MIN,
)
_POSITION = {resource: index for index, resource in enumerate(_TREE)}
_SWITCHES = frozenset({Resource.SYSCTL_GROUP_IDENTITY, Resource.SYSCTL_SCHED_CORE})
_SWITCHED = frozenset({Resource.CPU_BVT_WARP_NS, Resource.CORE_SCHED_GROUP})
_NEUTRAL = (0, "")
"""No identity, no cookie."""
_SETS = frozenset({Resource.CPUSET_CPUS, Resource.CPUSET_MEMS})
_BANDWIDTH = (Resource.CPU_PERIOD_US, Resource.CPU_QUOTA_US, Resource.CPU_BURST_US)
_EVERYTHING = float("inf")

Lineages = tuple[set[tuple[str, Resource]], set[tuple[str, Resource]]]
"""Files by cgroup and resource, and those of the same kind in all cgroups above them."""
_Placed = tuple[int, int, str, list[Step]]
"""Steps that stay together, behind what they are sorted by."""


def depth(cgroup: str) -> int:
    """0 for the root cgroup."""
    return cgroup.count("/") + 1 if cgroup else 0


def lineages(files: Iterable[tuple[str, Resource]]) -> Lineages:
    """In one pass over ``files``, for questions about many others."""
    own = set(files)
    above = {(each, resource) for cgroup, resource in own for each in ancestors(cgroup)}
    return own, above


def is_related(file: tuple[str, Resource], to: Lineages) -> bool:
    """Whether a cgroup above or below that of ``file`` has one of the same kind among them."""
    own, above = to
    return file in above or any((each, file[1]) in own for each in ancestors(file[0]))


def order(changes: Sequence[Change], v1: Container[str]) -> list[Step]:
    """Steps that apply ``changes``; at most one change per file.

    ``v1``: the controllers mounted as v1 hierarchies (``Layout.v1``).
    """
    sets_inherit, tree_limits = "cpuset" not in v1, "cpu" in v1
    relatives = _with_relatives(changes)
    grow: list[_Placed] = []
    shrink: list[_Placed] = []
    plain: list[_Placed] = []
    bundled = _bundles(changes)
    for cgroup, parts in bundled.items():
        target = grow if _ratio(parts, new=True) >= _ratio(parts, new=False) else shrink
        target.append(
            (depth(cgroup), _POSITION[Resource.CPU_QUOTA_US], cgroup, _bundle(parts, tree_limits))
        )
    for change in changes:
        cgroup, resource, old, new = change
        if resource in _BANDWIDTH and cgroup in bundled:
            continue
        level, position = depth(cgroup), _POSITION.get(resource)
        step = Step(cgroup, resource, new)
        if position is None or (resource is Resource.CPU_PERIOD_US and not tree_limits):
            steps = [step]
            if resource is Resource.RESCTRL_SCHEMATA and old == ABSENT:
                steps.insert(0, Step(cgroup, resource, MADE, last=False))
            plain.append((_plain_rank(change), level, cgroup, steps))
        elif resource in _SETS:
            before, after = _members(old, sets_inherit), _members(new, sets_inherit)
            if before is None or (after is not None and after <= before):
                shrink.append((level, position, cgroup, [step]))
            elif after is None or before <= after or (cgroup, resource) not in relatives:
                grow.append((level, position, cgroup, [step]))
            else:
                union = Step(cgroup, resource, format_cpulist(before | after), last=False)
                grow.append((level, position, cgroup, [union]))
                shrink.append((level, position, cgroup, [step]))
        else:
            larger = _amount(new) >= _amount(old)
            if resource is Resource.CPU_PERIOD_US:
                larger = not larger
            (grow if larger else shrink).append((level, position, cgroup, [step]))
    ordered = (*sorted(plain), *sorted(grow), *sorted(shrink, reverse=True))
    return [step for *_, steps in ordered for step in steps]


def _plain_rank(change: Change) -> int:
    """What makes room comes first, what takes it away last."""
    resource, new = change.resource, change.new
    if resource in LOCKS:
        return 5 if new == 1 else 0
    if resource is Resource.RESCTRL_SCHEMATA:
        return 5 if new == ABSENT else 0
    if resource is Resource.RESCTRL_MONITOR_GROUP:
        return 2 if new == ABSENT else 1
    if resource is Resource.RESCTRL_MONITOR:
        return 4
    if resource in _SWITCHES:
        return 2 if new else 1
    return 0 if resource in _SWITCHED and new in _NEUTRAL else 3


def _with_relatives(changes: Sequence[Change]) -> Container[tuple[str, Resource]]:
    """Those lists of CPUs or memory nodes above or below which another one changes."""
    lists = [(cgroup, resource) for cgroup, resource, *_ in changes if resource in _SETS]
    others = lineages(lists)
    return {each for each in lists if is_related(each, others)}


def _members(value: Value, inherit: bool) -> CPUSet | None:
    """None is everything: an empty list is the parent's in v2, and empty in v1."""
    members = parse_cpulist(str(value))
    return None if inherit and not members else members


def _amount(value: Value) -> float:
    return _EVERYTHING if value == UNLIMITED else int(value)


def _bundles(changes: Sequence[Change]) -> dict[str, dict[Resource, Change]]:
    """The bandwidth changes of each cgroup whose quota and period both change: one without the
    other is a limit that nobody asked for."""
    found: dict[str, dict[Resource, Change]] = {}
    for change in changes:
        if change.resource in _BANDWIDTH:
            found.setdefault(change.cgroup, {})[change.resource] = change
    needed = {Resource.CPU_PERIOD_US, Resource.CPU_QUOTA_US}
    return {cgroup: parts for cgroup, parts in found.items() if needed <= parts.keys()}


def _ratio(parts: Mapping[Resource, Change], *, new: bool) -> float:
    quota, period = parts[Resource.CPU_QUOTA_US], parts[Resource.CPU_PERIOD_US]
    if new:
        return _amount(quota.new) / int(period.new)
    return _amount(quota.old) / int(period.old)


def _bundle(parts: Mapping[Resource, Change], tree_limits: bool) -> list[Step]:
    """v1 compares quota/period with the tree after each single write, and neither write alone need
    give a ratio between the old and the new one. So it goes through an unlimited quota, which fits
    below every parent and above every child."""
    quota, period = parts[Resource.CPU_QUOTA_US], parts[Resource.CPU_PERIOD_US]
    burst = parts.get(Resource.CPU_BURST_US)
    steps = [Step(*period[:2], period.new, old=period.old)]
    opens = tree_limits and UNLIMITED not in (quota.old, quota.new)
    if opens:
        steps.insert(0, Step(*quota[:2], UNLIMITED, last=False, old=quota.old))
    first = quota.new == UNLIMITED
    steps.insert(0 if first else len(steps), Step(*quota[:2], quota.new, old=quota.old))
    if burst is not None:
        shrinks = _amount(burst.new) < _amount(burst.old)
        steps.insert(0 if shrinks else len(steps), Step(*burst[:2], burst.new))
    return steps
