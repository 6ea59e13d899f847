"""How what a parent has is shared by its children, one resource at a time, in exact integers
(docs/reference/central.md 4.4, 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Want(NamedTuple):
    """Of one child. ``request``: its limited request. ``least``: what is its own, ``min`` after
    scaling or what is guaranteed. ``lends``: it leaves to others what it does not request of
    that."""

    name: str
    weight: int
    request: int
    least: int
    lends: bool = True


def shared(total: int, wants: Sequence[Want]) -> list[int]:
    """What each may use now, in their order.

    What is left when everybody has the least goes to those that request more, by weight, until
    each has its request or nothing is left. Weights that divide nothing give nothing.
    """
    found = [0] * len(wants)
    active: list[int] = []
    pool = total
    for at, (_, _, request, least, lends) in enumerate(wants):
        if request > least:
            found[at] = least
            active.append(at)
        else:
            found[at] = request if lends else least
        pool -= found[at]
    while pool > 0 and active:
        weights = [wants[at].weight for at in active]
        if sum(weights) <= 0:
            break
        shares = split(pool, weights, [wants[at].name for at in active])
        pool, still = 0, []
        for at, share in zip(active, shares, strict=True):
            has, request = found[at] + share, wants[at].request
            if has < request:
                still.append(at)
            else:
                pool += has - request
                has = request
            found[at] = has
        active = still
    return found


def split(amount: int, weights: Sequence[int], names: Sequence[str]) -> list[int]:
    """``amount`` by weight with the largest remainder; the shares sum up to it. Of equal
    remainders the one with the smaller name is first. The sum of ``weights`` is above 0."""
    whole = sum(weights)
    shares, rests = [], []
    for at, weight in enumerate(weights):
        share, rest = divmod(weight * amount, whole)
        shares.append(share)
        if rest:
            rests.append((-rest, names[at], at))
    missing = amount - sum(shares)
    if missing:
        rests.sort()
        for _, _, at in rests[:missing]:
            shares[at] += 1
    return shares


class Min(NamedTuple):
    amount: int
    scalable: bool = True


def scaled(total: int, mins: Iterable[Min]) -> list[int]:
    """``min`` of each child where the parent has ``total`` (4.5): those that are scalable share
    what the others leave, rounded down."""
    mins = tuple(mins)
    if total >= sum(each.amount for each in mins):
        return [each.amount for each in mins]
    left = total - sum(each.amount for each in mins if not each.scalable)
    whole = sum(each.amount for each in mins if each.scalable)
    return [
        each.amount
        if not each.scalable
        else left * each.amount // whole
        if left > 0 and whole > 0
        else 0
        for each in mins
    ]
