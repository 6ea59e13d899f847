"""A plan in two: what may be carried out, and what a pause leaves to be shown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why
from koordlet.pause.model import Pause, covering, whole

Bound = Callable[[str, Resource], str]
"""The managed cgroup above whose value the kernel holds this file to, so that a pause of what is
below cannot let it go; empty: none (``bound_above``)."""

_INSIDE_PARENT = frozenset({Resource.CPUSET_CPUS, Resource.CPUSET_MEMS})


def unbound(cgroup: str, resource: Resource) -> str:
    """Where files do not hold each other."""
    return ""


def split(plan: Plan, pauses: Sequence[Pause], bound: Bound = unbound) -> tuple[Plan, Plan]:
    """(what may be carried out, what is only shown). The first has no evictions.

    A plan that keeps everything keeps nothing more than is in force, so both parts do.
    """
    if whole(pauses, plan.owner) is not None:
        return Plan(plan.owner, amends=plan.amends), plan
    carried, shown = [], []
    for setting in plan.settings:
        pause = covering(pauses, plan.owner, setting.cgroup)
        above = bound(setting.cgroup, setting.resource) if pause is not None else ""
        if pause is None:
            carried.append(setting)
        elif above:
            carried.append(_following(setting, pause, above))
        else:
            shown.append(setting)
    return (
        msgspec.structs.replace(plan, settings=tuple(carried), evictions=()),
        msgspec.structs.replace(plan, settings=tuple(shown), evictions=()),
    )


def bound_above(
    cgroup: str, resource: Resource, above: Iterable[str], is_managed: Callable[[str], bool]
) -> str:
    """The nearest of ``above`` that is managed, for a file that cgroup v1 keeps inside that of its
    parent: the kernel lets no child have a CPU that its parent lacks, and takes none from a parent
    whose child has it (``validate_change`` in kernel/cgroup/cpuset.c). On v2 it sees to that by
    itself."""
    if resource not in _INSIDE_PARENT:
        return ""
    return next(filter(is_managed, above), "")


def _following(setting: Setting, pause: Pause, above: str) -> Setting:
    why = setting.why
    text = (
        f"{why.text} ({pause.scope.title} is {pause.text}; but on cgroup v1 {setting.resource} "
        f"must lie inside that of {above}, which is managed, so it follows)"
    )
    return msgspec.structs.replace(setting, why=Why(why.rule, text, why.inputs))
