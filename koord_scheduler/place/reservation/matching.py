"""Which pods may use which reservations (docs/reference/central.md 7.3)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import NodeRequirement, PodClass, Toleration
from koord_scheduler.model.wire import Wire
from koord_scheduler.place.node_affinity import meets
from koord_scheduler.place.reservation.reservation import (
    AFFINITY,
    EXACT_MATCH,
    IGNORED,
    Reservation,
)
from koord_scheduler.place.taints import CORDONED, tolerates
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.objects.reservation import ReservationOwner
from koordlet.protocol.selector import matches

_MOST_TERMS = 64


class Match(Enum):
    """Why a reservation is or is not for a pod."""

    YES = "matched"
    OWNERS = "didn't match owners"
    USED = "is used already"
    NAME = "didn't match the requested reservation name"
    EXACT = "is not exact matched"
    UNSCHEDULABLE = "is unschedulable"
    TAINT = "had untolerated taint"
    AFFINITY = "didn't match affinity rules"


class _Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Expression(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Term(Wire, frozen=True):
    match_expressions: tuple[_Expression, ...] = ()
    match_fields: tuple[_Expression, ...] = ()


class _Required(Wire, frozen=True):
    reservation_selector_terms: tuple[_Term, ...] = ()


class _Affinity(Wire, frozen=True):
    name: str = ""
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    reservation_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[_Toleration, ...] = ()


class Affinity(msgspec.Struct, frozen=True):
    """``terms``: one must hold; None without any."""

    name: str = ""
    selector: Mapping[str, str] = {}
    terms: tuple[tuple[NodeRequirement, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


class Wishes(msgspec.Struct, frozen=True):
    """What a pod says of reservations. ``affinity`` None: it needs none. ``unreadable``: it needs
    one, but what it wrote cannot be read, so that none matches. ``ignored``: it uses none, and what
    all of them keep is free for it."""

    affinity: Affinity | None = None
    exact: tuple[str, ...] = ()
    ignored: bool = False
    unreadable: bool = False


class _Exact(Wire, frozen=True):
    resource_names: tuple[str, ...] = ()


_affinity = msgspec.json.Decoder(_Affinity)
_exact = msgspec.json.Decoder(_Exact)


def wishes_of(pod: PodClass) -> Wishes:
    text, exact = pod.annotations.get(AFFINITY), pod.annotations.get(EXACT_MATCH)
    if pod.labels.get(IGNORED) == "true":
        return Wishes(ignored=True)
    try:
        names = _exact.decode(exact).resource_names if exact else ()
        found = _affinity.decode(text) if text else None
    except UNREADABLE:
        return Wishes(Affinity(), unreadable=True)
    if found is None:
        return Wishes(None, names)
    terms = None
    if found.required is not None:
        terms = tuple(
            (
                *(NodeRequirement(e.key, e.operator, e.values) for e in t.match_expressions),
                *(NodeRequirement(e.key, e.operator, e.values, True) for e in t.match_fields),
            )
            for t in found.required.reservation_selector_terms[:_MOST_TERMS]
        )
    tolerations = tuple(
        Toleration(t.key, t.operator or "Equal", t.value, t.effect)
        for t in found.tolerations[:_MOST_TERMS]
    )
    affinity = Affinity(found.name, found.reservation_selector, terms, tolerations)
    return Wishes(affinity, names)


def match(pod: PodClass, wishes: Wishes, reservation: Reservation, node: Node, used: bool) -> Match:
    """``used``: some pod uses it. For a reservation that is available on ``node``."""
    if reservation.allocate_once and used:
        return Match.USED
    if wishes.ignored:
        return Match.YES
    if wishes.unreadable:
        return Match.AFFINITY
    if not owned(pod, reservation.owners):
        return Match.OWNERS
    affinity = wishes.affinity
    if affinity is not None and affinity.name:
        if affinity.name != reservation.name:
            return Match.NAME
        return Match.YES if _exactly(pod, wishes, reservation) else Match.EXACT
    tolerations = affinity.tolerations if affinity is not None else ()
    if reservation.unschedulable and not any(tolerates(t, CORDONED) for t in tolerations):
        return Match.UNSCHEDULABLE
    for taint in reservation.taints:
        refuses = taint.effect in ("NoSchedule", "NoExecute")
        if refuses and not any(tolerates(t, taint) for t in tolerations):
            return Match.TAINT
    if affinity is not None and not _selects(affinity, reservation, node):
        return Match.AFFINITY
    return Match.YES if _exactly(pod, wishes, reservation) else Match.EXACT


def owned(pod: PodClass, owners: tuple[ReservationOwner, ...] | None) -> bool:
    """Whether one of the owners means pods of this class."""
    return any(_owner_means(pod, owner) for owner in owners or ())


def _owner_means(pod: PodClass, owner: ReservationOwner) -> bool:
    if owner.object is not None:
        wanted = owner.object
        namespace, _, name = pod.named.partition("/")
        if not pod.named or wanted.name not in ("", name):
            return False
        if wanted.namespace not in ("", namespace):
            return False
    if owner.controller is not None:
        asked, there = owner.controller, pod.owner
        if asked.namespace not in ("", pod.namespace):
            return False
        if asked.controller is False or (not there.uid and not there.name):
            return False
        for want, have in (
            (asked.uid, there.uid),
            (asked.name, there.name),
            (asked.kind, there.kind),
            (asked.api_version, there.api_version),
        ):
            if want not in ("", have):
                return False
    return owner.label_selector is None or matches(owner.label_selector, pod.labels)


def named_by(reservations: Mapping[str, Reservation]) -> frozenset[str]:
    """Keys of the pods that reservations name: these need classes of their own
    (`model.pod_reading.Classes.named`)."""
    return frozenset(
        f"{owner.object.namespace}/{owner.object.name}"
        for each in reservations.values()
        for owner in each.owners or ()
        if owner.object is not None and owner.object.name
    )


def _selects(affinity: Affinity, reservation: Reservation, node: Node) -> bool:
    labels: dict[str, Any] = {**node.labels, **reservation.labels}
    if any(labels.get(key) != value for key, value in affinity.selector.items()):
        return False
    stand_in = Node(name=reservation.name, labels=labels)
    return affinity.terms is None or any(meets(term, stand_in) for term in affinity.terms)


def _exactly(pod: PodClass, wishes: Wishes, reservation: Reservation) -> bool:
    return all(
        pod.requests.get(name, 0) == reservation.allocatable.get(name, 0) for name in wishes.exact
    )
