"""The desired state of one owner, as data.

A plan is complete: whatever an owner wanted last time and no longer lists, it gives up, and
the actuator puts the value back that it had found.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from koordlet.decision.family import Family, Labels
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Why


class Setting(msgspec.Struct, frozen=True):
    """``resource`` of ``cgroup`` shall be ``value``.

    ``cgroup`` is relative to the hierarchy roots, without slashes at its ends
    (``kubepods/besteffort``); ``""`` is the root cgroup.

    ``without``: what the file would hold without koordlet, where our value came into it through
    the container runtime, before the first look. That goes back one day.

    ``raises``: the limit that this value is a temporary raise of. Where other owners agree on that
    limit this value stands in its place; where they want anything else, theirs counts.
    """

    cgroup: str
    resource: Resource
    value: Value
    why: Why
    without: Value | None = None
    raises: Value | None = None


class VictimKind(StrEnum):
    POD = "pod"
    APPLICATION = "application"


class Victim(msgspec.Struct, frozen=True, order=True):
    """Whom an eviction is about. ``name``: uid of a pod, name of an application."""

    kind: VictimKind
    name: str


class Eviction(msgspec.Struct, frozen=True):
    """``victim`` shall end, so that others get what it holds.

    ``feature`` is the one of the reference that asks for it. ``releases``: resource -> amount that
    this gives back, CPU in milli-cores, memory in bytes. ``grace_s``: the most that it is waited
    for, whatever grace its pod has.
    """

    victim: Victim
    feature: str
    why: Why
    releases: tuple[tuple[str, int], ...] = ()
    grace_s: float = 30.0


class Plan(msgspec.Struct, frozen=True):
    """Everything ``owner`` wants of the host now.

    ``keep`` lists settings (cgroup, resource) that the owner cannot judge at present, because an
    input is missing: the actuator leaves them as they are, neither written nor restored.
    """

    owner: str
    settings: tuple[Setting, ...] = ()
    keep: tuple[tuple[str, Resource], ...] = ()
    keep_all: bool = False
    """True: no judgement possible at all, everything of this owner stays as it is."""
    keep_below: tuple[str, ...] = ()
    """Cgroups of pods of which too little is known: what the owner has set there, and what it has
    set at no cgroup (groups of resctrl), stays unless ``settings`` list it."""
    amends: bool = False
    """True: an answer to an event. Settings are added to, or replace, what the owner wants
    already; nothing is given up."""
    evictions: tuple[Eviction, ...] = ()
    """Asked for once: unlike settings they are not repeated, and nothing undoes them."""


class Gauge(msgspec.Struct, frozen=True):
    """A figure that a decision publishes on the metrics page, in a family that its part declares.
    ``labels`` in the order of the family's."""

    family: Family
    value: float
    labels: Labels = ()


class Reclaim(msgspec.Struct, frozen=True):
    """The kernel shall take up to ``size_bytes`` of memory back from ``cgroup``, now.

    Something that is done, not a state that is kept: there is nothing to put back, and who wants
    more of it says so again.
    """

    cgroup: str
    size_bytes: int
    why: Why


class Decision(msgspec.Struct, frozen=True):
    """What a strategy or a reconcile pass returns: plan, next memory, and the reasons.

    ``notes`` explain what was *not* done (refused, bypassed, waiting); a setting carries its own
    reason.

    ``summary``: what lists show of it; empty: the first reason there is.

    ``ls_cores``: CPU use of latency-sensitive work that the plan made room for; use well above it
    wakes the strategy (``WakeKind.USAGE``). None: the plan rests on no such figure.
    """

    plan: Plan
    memory: Any = None
    notes: tuple[Why, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    summary: str = ""
    ls_cores: float | None = None


class Result(StrEnum):
    """What became of one setting."""

    WRITTEN = "written"
    IN_FORCE = "in-force"  # the kernel holds it already
    WOULD_WRITE = "would-write"  # observe mode
    OUTVOTED = "outvoted"  # another owner's value won the merge
    RESTORED = "restored"  # nobody wants it any more: original put back
    WOULD_RESTORE = "would-restore"
    UNSUPPORTED = "unsupported"  # this kernel lacks the file
    REFUSED = "refused"  # the kernel said no; text holds errno and path
    CONFLICT = "conflict"  # a second writer: backing off
    GONE = "gone"  # the cgroup vanished
    DOUBTFUL = "doubtful"  # not put back: the journal is damaged, its original is not certain
