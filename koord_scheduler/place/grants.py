"""What allocators gave the pods of a node, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from koord_scheduler.model.cluster.pods import Claim, Pod

Grant = TypeVar("Grant")
Key = TypeVar("Key")
_RESERVATION = "Reservation"


class Loan(NamedTuple):
    """Holdings of others that a pod may use. ``keys``: of the pods that lend: the reserve pod
    of a reservation to its users, running pods to one that pre-allocates. ``reservation``: uid of
    the one that lends. ``restricted``: resources of which the pod gets none but what is lent.
    ``whole``: what is lent must be part of what the pod gets."""

    keys: frozenset[str] = frozenset()
    reservation: str = ""
    restricted: frozenset[str] = frozenset()
    whole: bool = False


NO_LOAN = Loan()


def loan_of(grants: Mapping[str, Any]) -> Loan:
    """Return what the reservations decided for a pod, as other allocators see it."""
    found: Loan = getattr(grants.get(_RESERVATION), "loan", NO_LOAN)
    return found


def granted(claims: Iterable[Claim], plugin: str, kind: type[Grant]) -> list[tuple[Claim, Grant]]:
    """Claims that hold a grant of a plugin, with it."""
    return [(c, found) for c in claims if isinstance(found := c.grants.get(plugin), kind)]


def sums(
    pairs: Iterable[tuple[Claim, Grant]], amounts: Callable[[Grant], Iterable[tuple[Key, int]]]
) -> dict[Key, int]:
    """By all grants. Where pods use a reservation, the larger of both counts for each amount: what
    the reservation holds, or what its users have."""
    total: dict[Key, int] = {}
    held: dict[str, dict[Key, int]] = {}
    users: dict[str, dict[Key, int]] = {}
    for claim, grant in pairs:
        into = total
        if claim.holds:
            into = held.setdefault(claim.holds, {})
        elif claim.reservation:
            into = users.setdefault(claim.reservation, {})
        for key, amount in amounts(grant):
            if amount > 0:
                into[key] = into.get(key, 0) + amount
    for name in held.keys() | users.keys():
        kept, taken = held.get(name, {}), users.get(name, {})
        for key in kept.keys() | taken.keys():
            total[key] = total.get(key, 0) + max(kept.get(key, 0), taken.get(key, 0))
    return total


def without(claims: Iterable[Claim], loan: Loan) -> Iterable[Claim]:
    """Return the claims as whoever has the loan finds them: but for those that lend."""
    return (c for c in claims if c.pod.key not in loan.keys) if loan.keys else claims


def lent(
    claims: Iterable[Claim], plugin: str, kind: type[Grant], loan: Loan
) -> tuple[list[Grant], list[Grant]]:
    """Return the grants of those that lend, and of those who have a part of that already."""
    give, take = [], []
    for claim, grant in granted(claims, plugin, kind):
        if claim.pod.key in loan.keys:
            give.append(grant)
        elif loan.reservation and claim.reservation == loan.reservation:
            take.append(grant)
    return give, take


def claim_of(
    pod: Pod,
    before: Claim | None,
    recognise: Callable[[Pod], Mapping[str, Any]],
    now_s: float,
) -> Claim:
    """Return the claim of a pod that has a node. What was decided here, or was read of the same
    annotations ``before``, stays; else the annotations tell (``recognise``)."""
    ours = before is not None and before.node == pod.node and before.pod.uid == pod.uid
    if (
        before is not None
        and ours
        and (not before.pod.node or before.pod.annotations == pod.annotations)
    ):
        return Claim(pod, pod.node, before.since_s, before.grants, before.reservation)
    grants = recognise(pod)
    uids = (getattr(each, "reservation", "") for each in grants.values())
    return Claim(pod, pod.node, pod.scheduled_s or now_s, grants, next(filter(None, uids), ""))
