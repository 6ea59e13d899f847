"""Other writers of files that koordlet writes: declared once, for outcomes, for `doctor`, and for
docs/concepts/actuator.md, where a test compares the table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from koordlet.actuator.rewrites import AMOUNTS, NEW, SETTLES_S
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.kubepods import is_below_root, is_in_pod

UNKNOWN = "another process"
_UNITS = (".service", ".scope", ".slice")


class Place(StrEnum):
    SLICES = "kubelet's directories of classes"
    PODS = "pods and containers"
    UNITS = "other units of systemd"


class Sharer(NamedTuple):
    """``program``: it must run here, else nobody does so. ``of_units``: only where the cgroup is
    one of systemd's. ``any_value``: it does not only reset. ``within_s``: seconds after our first
    write."""

    who: str
    when: str
    effect: str
    program: str
    places: frozenset[Place]
    resources: frozenset[Resource]
    of_units: bool = False
    any_value: bool = False
    within_s: float | None = None


_LIMITS = frozenset(
    (
        Resource.CPU_QUOTA_US,
        Resource.MEMORY_MIN,
        Resource.MEMORY_LOW,
        Resource.MEMORY_HIGH,
        Resource.MEMORY_LIMIT,
    )
)
_EVERYWHERE = frozenset(Place)
_ALL = frozenset(NEW)

SHARERS = (
    Sharer(
        "kubelet with the systemd driver",
        "once a minute and with each pod it sets the weight of its slices through systemd, which "
        "then writes every file of every controller it knows for that unit",
        "`cpu.max`, `memory.min`, `memory.low`, `memory.high` and `memory.max` of `kubepods.slice` "
        "and of the slices of classes become what systemd was told; CPU lists stay",
        "kubelet",
        frozenset({Place.SLICES}),
        _LIMITS,
        of_units=True,
    ),
    Sharer(
        "kubelet 1.37 (`MemoryQoS`)",
        "at its start; with each create and resize of a container",
        "`memory.min` and `memory.low` of 0, of the slices, the pod and the container; amounts "
        "of requests only with `memoryReservationPolicy`, `memory.high` only with "
        "`memoryThrottlingFactor`",
        "kubelet",
        frozenset({Place.SLICES, Place.PODS}),
        AMOUNTS,
        any_value=True,
    ),
    Sharer(
        "the container runtime (runc, crun), or systemd for it",
        "while they make a pod or a container",
        "every file of the new cgroup, up to a second after it is there",
        "kubelet",
        frozenset({Place.PODS}),
        _ALL,
        any_value=True,
        within_s=SETTLES_S,
    ),
    Sharer(
        "systemd (`daemon-reload`, 262 and later)",
        "it is told to read its units again, as package managers do",
        "every file of every unit, delegated ones too, becomes what systemd was told, else none",
        "systemd",
        _EVERYWHERE,
        _ALL,
        of_units=True,
    ),
    Sharer(
        "systemd (`set-property`)",
        "somebody sets any property of a unit",
        "every file of that unit becomes what systemd was told, else none",
        "systemd",
        _EVERYWHERE,
        _ALL,
        of_units=True,
    ),
)


def likely(cgroup: str, resource: Resource, found: Value, age_s: float) -> str:
    """Return who has probably written ``found`` over our value, which stands there for
    ``age_s``."""
    names = [each.who.replace("`", "") for each in _writers(cgroup, resource, found, age_s)]
    return " or ".join(names) or UNKNOWN


def shared_with(cgroup: str, resource: Resource) -> str:
    """Return in words who else writes that file by right, and when; empty where nobody does."""
    place = _place(cgroup)
    told = [
        f"{each.who}: {each.when}" for each in SHARERS if _writes(each, cgroup, place, resource)
    ]
    return "; ".join(told).replace("`", "")


def _writers(cgroup: str, resource: Resource, found: Value, age_s: float) -> Iterator[Sharer]:
    place = _place(cgroup)
    resets = found in NEW.get(resource, ())
    for each in SHARERS:
        expected = resets or (each.any_value and place is Place.PODS)
        in_time = each.within_s is None or age_s < each.within_s
        if expected and in_time and _writes(each, cgroup, place, resource):
            yield each


def _writes(sharer: Sharer, cgroup: str, place: Place | None, resource: Resource) -> bool:
    is_there = place in sharer.places and (not sharer.of_units or cgroup.endswith(_UNITS))
    return is_there and resource in sharer.resources


def _place(cgroup: str) -> Place | None:
    if is_below_root(cgroup):
        return Place.PODS if is_in_pod(cgroup) else Place.SLICES
    return Place.UNITS if cgroup.endswith(_UNITS) else None
