"""Who wants what: plans turned into claims per file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordlet.actuator.journal.journal import Entry
from koordlet.actuator.merge import Claim, Key
from koordlet.decision.cgroups import inside
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why

_OF_GROUPS = frozenset({Resource.RESCTRL_SCHEMATA, Resource.RESCTRL_MONITOR_GROUP})
"""The group of a pod may be among them: its name is no cgroup."""

ADOPTED = Why("actuator.adopted", "found in the journal: written before this start")


def absorb(before: Mapping[Key, Claim], plan: Plan) -> dict[Key, Claim]:
    """The claims of one owner after ``plan``: what it lists, and passively what it keeps; after
    one that amends, also what it wanted before.

    Keeping what was never claimed means nothing.
    """
    kept: Iterable[Key] = before if plan.keep_all else (Key(*key) for key in plan.keep)
    if plan.keep_below and not plan.keep_all:
        kept = (*kept, *(key for key in before if _is_below(key, plan.keep_below)))
    claims = (
        dict(before)
        if plan.amends
        else {key: before[key]._replace(active=False) for key in kept if key in before}
    )
    for setting in plan.settings:
        claims[Key(setting.cgroup, setting.resource)] = Claim(plan.owner, setting)
    return claims


def _is_below(key: Key, cgroups: Sequence[str]) -> bool:
    if key.resource in _OF_GROUPS:
        return True
    return any(inside(key.cgroup, cgroup) for cgroup in cgroups)


def adopt(entries: Iterable[Entry]) -> dict[str, dict[Key, Claim]]:
    """Owner -> passive claims on what the journal says was written for it."""
    owners: dict[str, dict[Key, Claim]] = {}
    for entry in entries:
        if entry.ours:
            key = entry.original.key
            setting = Setting(*key, entry.ours[-1], ADOPTED)
            owners.setdefault(entry.owner, {})[key] = Claim(entry.owner, setting, active=False)
    return owners
