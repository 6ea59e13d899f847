"""What allocators gave the pods of a node, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from koord_scheduler.model.cluster.pods import Claim

Grant = TypeVar("Grant")
Key = TypeVar("Key")


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
        if claim.pod.holds:
            into = held.setdefault(claim.pod.holds, {})
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


def without(claims: Iterable[Claim], reservation: str) -> Iterable[Claim]:
    """The claims as users of ``reservation`` find the node: but for its reserve pod. Empty: all."""
    return (c for c in claims if c.pod.holds != reservation) if reservation else claims
