"""How an adjustment reaches a container: one table for the three ways
(docs/reference/hooks.md 1.6, 3.3).

A runtime that asks gets fields of its own protocol. A value without a field, and every value when
no runtime asks, becomes a setting of a plan. All three ways end in the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import ABSENT, UNLIMITED, Resource, Value
from koordlet.decision.snapshot import InForce
from koordlet.decision.strategy import Subject
from koordlet.decision.why import Why


@dataclass(frozen=True)
class Fields:
    """The field that carries a value. Empty: that protocol has none for it.

    ``cri``: field of ``LinuxContainerResources``. ``nri``: path in ``LinuxContainerAdjustment``;
    below ``resources`` it is in ``LinuxContainerUpdate`` as well.
    """

    cri: str = ""
    nri: str = ""


FIELDS: Mapping[Resource, Fields] = {
    Resource.CPU_SHARES: Fields("cpu_shares", "resources.cpu.shares"),
    Resource.CPU_QUOTA_US: Fields("cpu_quota", "resources.cpu.quota"),
    Resource.CPU_PERIOD_US: Fields("cpu_period", "resources.cpu.period"),
    Resource.CPUSET_CPUS: Fields("cpuset_cpus", "resources.cpu.cpus"),
    Resource.CPUSET_MEMS: Fields("cpuset_mems", "resources.cpu.mems"),
    Resource.MEMORY_LIMIT: Fields("memory_limit_in_bytes", "resources.memory.limit"),
    Resource.OOM_SCORE_ADJ: Fields("oom_score_adj", "oom_score_adj"),
    Resource.RESCTRL_GROUP: Fields("", "resources.rdt_class"),
}


def cri_fields(combined: Combined) -> dict[str, Value]:
    """What to set in the resources of a CRI request or of a hook response."""
    return dict(_fields(combined, lambda fields: fields.cri))


def nri_fields(combined: Combined, *, update: bool = False) -> dict[str, Value]:
    """Path -> value. ``update``: of a container that exists, where only resources can change."""
    found = _fields(combined, lambda fields: fields.nri)
    return {path: value for path, value in found if not update or path.startswith("resources.")}


def startable(combined: Combined, in_force: InForce) -> Combined:
    """For a runtime that makes a container: without a resctrl group that is not there, in which it
    would refuse to start (OCI runtime specification, ``intelRdt.closID``). Its threads are moved
    when there is one."""
    kept, notes = [], [*combined.notes]
    for each in combined.settings:
        group = str(each.value) if each.resource is Resource.RESCTRL_GROUP else ""
        if group and in_force.value(group, Resource.RESCTRL_SCHEMATA) in (None, ABSENT):
            text = f"resctrl group {group} does not exist; the container starts without it"
            notes.append((each.owner, Why("delivery.no-group", text)))
        else:
            kept.append(each)
    return msgspec.structs.replace(combined, settings=tuple(kept), notes=tuple(notes))


def settings(subject: Subject, combined: Combined) -> Iterator[tuple[str, Setting]]:
    """(owner, setting) of everything a plan can hold."""
    requested = subject.container.requested if subject.container is not None else {}
    for owner, group in combined.groups:
        name, schemata, why = group.name, group.schemata, group.why
        # One that is there already, just as it shall be, is of an earlier daemon.
        yield owner, Setting(name, Resource.RESCTRL_SCHEMATA, schemata, why, without=ABSENT)
    for wanted in combined.settings:
        yield wanted.owner, _setting(subject.cgroup, wanted, requested)


def plans(subject: Subject, combined: Combined) -> tuple[Plan, ...]:
    """One for each owner, to be added to what it wants of other subjects."""
    owned: dict[str, list[Setting]] = {}
    for owner, setting in settings(subject, combined):
        owned.setdefault(owner, []).append(setting)
    return tuple(Plan(owner, tuple(each), amends=True) for owner, each in owned.items())


# What a file holds when kubelet asks for nothing.
UNASKED = {Resource.CPU_QUOTA_US: UNLIMITED, Resource.MEMORY_LIMIT: UNLIMITED}


def _setting(cgroup: str, wanted: Wanted, requested: Mapping[Resource, Value]) -> Setting:
    without = requested.get(wanted.resource)
    # Kubelet gives every container shares. Without them it is an update of something else that is
    # known, of a container that was made while nobody was asked.
    if Resource.CPU_SHARES in requested and not without:
        without = UNASKED.get(wanted.resource)
    return Setting(cgroup, wanted.resource, wanted.value, wanted.why, without=without)


def _fields(combined: Combined, place: Callable[[Fields], str]) -> Iterator[tuple[str, Value]]:
    for wanted in combined.settings:
        where = place(FIELDS[wanted.resource]) if wanted.resource in FIELDS else ""
        if where:
            yield where, wanted.value
