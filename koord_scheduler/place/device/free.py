"""What is free of a node's devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.place.device.types import NO_NUMA, Amounts, Device, Grant, Shape
from koord_scheduler.place.grants import Loan, granted, lent, sums

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
    ``only``: None for all, else of their types these devices. ``first``: devices that are taken
    before any other. ``most``: None, or how much of these devices may be taken."""

    numa: frozenset[int] | None = None
    only: frozenset[Key] | None = None
    first: frozenset[Key] = frozenset()
    most: Mapping[Key, Amounts] | None = None

    def has(self, device: Device) -> bool:
        only = self.only
        of_type = only is not None and any(of == device.type for of, _ in only)
        if only is not None and of_type and (device.type, device.minor) not in only:
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


def devices_lent(claims: Iterable[Claim], loan: Loan) -> dict[Key, dict[str, int]]:
    """Return the devices of those that lend, with what is left of that."""
    give, take = lent(claims, NAME, Grant, loan)
    found: dict[Key, dict[str, int]] = {}
    for sign, grants in ((1, give), (-1, take)):
        for (device, name), amount in (each for grant in grants for each in _amounts(grant)):
            if sign > 0:
                found.setdefault(device, {})
            if device in found:
                found[device][name] = found[device].get(name, 0) + sign * amount
    return found


def table(
    shape: Shape,
    used: Used,
    keep: Callable[[Device], bool] | None = None,
    most: Mapping[Key, Amounts] | None = None,
) -> Table:
    """``keep``: which devices count, None for all; ``most``: as in `Scope`."""
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
        if most is not None and key in most:
            cap = most[key]
            free = {name: max(min(amount, cap.get(name, 0)), 0) for name, amount in free.items()}
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
