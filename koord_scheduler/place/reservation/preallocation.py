"""Reservations that take over the room of running pods (docs/reference/central.md 7.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.model.texts import whole_number
from koord_scheduler.place.reservation.arguments import NAME
from koord_scheduler.place.reservation.matching import owned
from koord_scheduler.place.reservation.reservation import (
    RESTRICTED,
    Reservation,
    ReservationGrant,
)
from koordlet.protocol.objects.reservation import ReservationOwner


def chosen(
    cluster: Cluster,
    reservation: Reservation,
    row: int,
    *,
    cluster_label: str,
    priority_annotation: str,
    only_if_needed: bool,
    serve: Callable[[tuple[Claim, ...]], bool],
) -> tuple[Claim, ...]:
    """The pods on a node whose room the reserve pod takes; none where there are none that make it
    fit. ``cluster_label``: marks candidates in mode Cluster, empty where that mode is off.
    ``serve``: whether its CPUs and devices can contain those of these pods."""
    wanted = reservation.pre_allocation
    if wanted is None or reservation.policy != RESTRICTED:
        return ()
    need = cluster.vector(reservation.pod.cls)
    free = cluster.allocatable[row] - cluster.requested[row]
    keeps = _keeps(reservation)
    if only_if_needed and _fits(need, free):
        return ()
    if wanted.cluster:
        if not cluster_label:
            return ()
        candidates = by_priority(
            (
                c
                for c in cluster.claims_on(row).values()
                if c.pod.labels.get(cluster_label) == "true"
            ),
            priority_annotation,
        )
    else:
        candidates = by_use(cluster, reservation, cluster.claims_on(row).values())
    # Those that an earlier attempt told, which did not get to its end.
    candidates.sort(key=lambda claim: claim.reservation != reservation.uid)
    taken: list[Claim] = []
    room = free.copy()
    total: Counter[str] = Counter()
    for claim in candidates:
        own = cluster.vector(claim.pod.cls)
        asked = Counter({"pods": 1, **in_normal_form(claim.pod.cls.requests)})
        if (
            claim.reservation not in ("", reservation.uid)
            or claim.holds
            or not keeps.keys() & (asked.keys() - {"pods"})
        ):
            continue
        if any(total[name] + asked[name] > most for name, most in keeps.items()):
            continue
        if claim.grants and not serve((*taken, claim)):
            continue
        if not wanted.multiple:
            if _fits(need, free + own):
                return (claim,)
            continue
        taken.append(claim)
        total += asked
        room += own
        if _fits(need, room):
            return tuple(taken)
    return ()


def _keeps(reservation: Reservation) -> dict[str, int]:
    """Return how much of each resource its pods may have of it."""
    names = {*reservation.restricted, *({"pods"} & reservation.allocatable.keys())}
    return {
        name: reservation.allocatable.get(name, 0) - reservation.reserved.get(name, 0)
        for name in names
    }


def _fits(need: Ints, free: Ints) -> bool:
    return not bool(((need > free) & (need > 0)).any())


def by_priority(claims: Iterable[Claim], annotation: str) -> list[Claim]:
    """The highest priority first, then by uid."""

    def priority(claim: Claim) -> int:
        return whole_number(claim.pod.annotations.get(annotation, ""), 10) or 0

    return sorted(claims, key=lambda c: (-priority(c), c.pod.uid))


def by_use(cluster: Cluster, reservation: Reservation, claims: Iterable[Claim]) -> list[Claim]:
    """Pods of the owners' selectors, those that fill most of the reservation first."""
    owners = tuple(o for o in reservation.owners or () if o.label_selector is not None)
    found = [c for c in claims if not c.pod.terminating and _owned(c, owners)]
    return sorted(found, key=lambda c: (-use(reservation, c.pod.cls.requests), c.pod.uid))


def _owned(claim: Claim, owners: tuple[ReservationOwner, ...]) -> bool:
    return owned(claim.pod.cls, owners, claim.pod.key.partition("/")[2], claim.pod.uid)


def use(reservation: Reservation, requests: Mapping[str, int]) -> int:
    """Return how much of it such a pod fills, 0 to 100."""
    asked = in_normal_form(requests)
    names = [name for name, n in reservation.allocatable.items() if n and name != "pods"]
    parts = [100 * asked.get(name, 0) // reservation.allocatable[name] for name in names]
    return sum(part for part in parts if part <= 100) // max(len(names), 1)


def lenders(claim: Claim) -> tuple[str, ...]:
    """Return keys of the running pods whose room a reserve pod took by this claim."""
    grant = claim.grants.get(NAME)
    return grant.pre_allocated if isinstance(grant, ReservationGrant) else ()


def hand_over(cluster: Cluster, reservation: str, keys: Iterable[str]) -> None:
    """The room of these pods is the reservation's from now on; ``reservation`` is its uid."""
    for key in keys:
        claim = cluster.claims.get(key)
        if claim is not None:
            cluster.add(msgspec.structs.replace(claim, reservation=reservation))
