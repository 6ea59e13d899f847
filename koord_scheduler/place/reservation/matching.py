"""Which pods may use which reservations (docs/reference/central.md 7.3)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import NodeRequirement, PodClass, Toleration
from koord_scheduler.model.wire import Wire
from koord_scheduler.place.node_affinity import meets
from koord_scheduler.place.reservation.reservation import (
    AFFINITY,
    EXACT_MATCH,
    IGNORED,
    Reservation,
)
from koord_scheduler.place.taints import CORDONED, tolerates, untolerated
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
    if reservation.allocate_once and (used or reservation.taken):
        return Match.USED
    if wishes.ignored:
        return Match.YES if reservation.pod.holds else Match.OWNERS
    if wishes.unreadable:
        return Match.AFFINITY
    holder = reservation.pod
    # Who may write a pod must not lead pods of others to room that the pod may be using.
    foreign = not holder.holds and holder.cls.namespace != pod.namespace
    if foreign or not owned(pod, reservation.owners):
        return Match.OWNERS
    affinity = wishes.affinity
    if affinity is not None and affinity.name:
        if affinity.name != reservation.name:
            return Match.NAME
        return Match.YES if _exactly(pod, wishes, reservation) else Match.EXACT
    tolerations = affinity.tolerations if affinity is not None else ()
    if reservation.unschedulable and not any(tolerates(t, CORDONED) for t in tolerations):
        return Match.UNSCHEDULABLE
    if untolerated_by(wishes, reservation) is not None:
        return Match.TAINT
    if affinity is not None and not _selects(affinity, reservation, node):
        return Match.AFFINITY
    return Match.YES if _exactly(pod, wishes, reservation) else Match.EXACT


def untolerated_by(wishes: Wishes, reservation: Reservation) -> Taint | None:
    """Return the first taint that keeps a pod away. A pod that says nothing of reservations is
    served by those with taints too."""
    if wishes.affinity is None:
        return None
    return untolerated(wishes.affinity.tolerations, reservation.taints)


def owned(
    pod: PodClass, owners: tuple[ReservationOwner, ...] | None, name: str = "", uid: str = ""
) -> bool:
    """Return whether one of the owners means pods of this class. ``name`` and ``uid``: of the one
    pod that is asked about; without them those by which some reservation knows the class."""
    name, uid = name or pod.named.name, uid or pod.named.uid
    return any(_owner_means(pod, owner, name, uid) for owner in owners or ())


def _owner_means(pod: PodClass, owner: ReservationOwner, name: str, uid: str) -> bool:
    wanted = owner.object
    if wanted is not None and not _all_given(
        (wanted.uid, uid),
        (wanted.name, name),
        (wanted.namespace, pod.namespace),
        (wanted.kind, "Pod"),
        (wanted.api_version, "v1"),
    ):
        return False
    if owner.controller is not None:
        asked = owner.controller
        if asked.namespace not in ("", pod.namespace):
            return False
        if not any(
            asked.controller in (None, there.controller)
            and _all_given(
                (asked.uid, there.uid),
                (asked.name, there.name),
                (asked.kind, there.kind),
                (asked.api_version, there.api_version),
            )
            for there in pod.owners
        ):
            return False
    return owner.label_selector is None or matches(owner.label_selector, pod.labels)


def _all_given(*pairs: tuple[str, str]) -> bool:
    """Return whether every field that is given is as it should be."""
    return all(want in ("", have) for want, have in pairs)


def named_by(reservations: Mapping[str, Reservation]) -> frozenset[str]:
    """Return the names and uids of the pods that reservations mean as objects: such pods need
    classes of their own (`model.pod_reading.Classes.named`)."""
    objects = (
        owner.object
        for each in reservations.values()
        for owner in each.owners or ()
        if owner.object is not None
    )
    return frozenset(text for each in objects for text in (each.name, each.uid) if text)


def _selects(affinity: Affinity, reservation: Reservation, node: Node) -> bool:
    labels: dict[str, Any] = {**node.labels, **reservation.labels}
    if any(labels.get(key) != value for key, value in affinity.selector.items()):
        return False
    stand_in = Node(name=reservation.name, labels=labels)
    return affinity.terms is None or any(meets(term, stand_in) for term in affinity.terms)


def _exactly(pod: PodClass, wishes: Wishes, reservation: Reservation) -> bool:
    asked = in_normal_form(pod.requests)
    names = in_normal_form(dict.fromkeys(wishes.exact, 0))
    return all(asked.get(name, 0) == reservation.allocatable.get(name, 0) for name in names)
