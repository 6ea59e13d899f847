"""What is free of a node's devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.place.device.types import NO_NUMA, Amounts, Device, Grant, Shape
from koord_scheduler.place.grants import granted, sums

NAME = "DeviceShare"
Key = tuple[str, int]
"""Type and minor of a device."""


class Used(NamedTuple):
    """Sorted, so that equal use is equal: amounts that are not zero, and buses of functions."""

    amounts: tuple[tuple[Key, tuple[tuple[str, int], ...]], ...] = ()
    functions: tuple[tuple[Key, str], ...] = ()


NOTHING = Used()


class Card(NamedTuple):
    """A device with what is left of it. ``taken``: somebody has a part of it."""

    device: Device
    total: Amounts
    free: Amounts
    taken: bool
    functions: frozenset[str]
    """Buses that are given away."""

    def holds(self, need: Amounts) -> bool:
        """A resource that the device does not have is not free."""
        return all(self.free.get(name, 0) >= amount for name, amount in need.items())


Table = Mapping[str, tuple[Card, ...]]
"""By type, by minor."""


class Scope(NamedTuple):
    """Which devices count. ``numa``: None for all; else a device must be near one of these.
    ``only``: None for all, else these devices."""

    numa: frozenset[int] | None = None
    only: frozenset[Key] | None = None

    def has(self, device: Device) -> bool:
        if self.only is not None and (device.type, device.minor) not in self.only:
            return False
        if self.numa is None:
            return True
        return device.placed and (device.numa == NO_NUMA or device.numa in self.numa)


ALL = Scope()


def used_by(claims: Iterable[Claim]) -> Used:
    """By all claims of a node."""
    found = granted(claims, NAME, Grant)
    if not found:
        return NOTHING
    by_device: dict[Key, list[tuple[str, int]]] = {}
    for (device, name), amount in sorted(sums(found, _amounts).items()):
        by_device.setdefault(device, []).append((name, amount))
    return Used(
        tuple((device, tuple(each)) for device, each in by_device.items()),
        tuple(sorted({each for _, grant in found for each in _functions(grant)})),
    )


def held_by(claims: Iterable[Claim], reservation: str) -> frozenset[Key]:
    """Devices of a reservation."""
    return frozenset(
        (of, given.minor)
        for claim, grant in granted(claims, NAME, Grant)
        if claim.pod.holds == reservation
        for of, parts in grant.devices.items()
        for given in parts
    )


def table(shape: Shape, used: Used, keep: Callable[[Device], bool] | None = None) -> Table:
    """``keep``: which devices count, None for all."""
    taken = dict(used.amounts)
    buses: dict[Key, set[str]] = {}
    for key, bus in used.functions:
        buses.setdefault(key, set()).add(bus)
    found: dict[str, list[Card]] = {}
    for device in shape.devices:
        if keep is not None and not keep(device):
            continue
        key = (device.type, device.minor)
        total = dict(device.total)
        mine = dict(taken.get(key, ()))
        free = {name: max(amount - mine.get(name, 0), 0) for name, amount in total.items()}
        card = Card(device, total, free, bool(mine), frozenset(buses.get(key, ())))
        found.setdefault(device.type, []).append(card)
    return {of: tuple(cards) for of, cards in found.items()}


def _amounts(grant: Grant) -> Iterable[tuple[tuple[Key, str], int]]:
    return (
        (((of, given.minor), name), amount)
        for of, parts in grant.devices.items()
        for given in parts
        for name, amount in given.amounts.items()
    )


def _functions(grant: Grant) -> Iterable[tuple[Key, str]]:
    return (
        ((of, given.minor), function.bus_id)
        for of, parts in grant.devices.items()
        for given in parts
        for function in given.functions
    )
