"""CPU and memory as the integers that all formulas of the companion use
(docs/reference/central.md 0.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.resources import CPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARE, MEMORY

Amount = TypeVar("Amount")
Text = str | int | float
"""A quantity on the wire: text in core objects, a bare number too in custom resources."""

_UNITS_OF_SUFFIX = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_MAX_DIGITS = 15
"""More digits may mean more than a signed 64-bit integer holds; the exact reader caps them."""


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """CPU in milli-cores and memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def minus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu_milli - other.cpu_milli, self.memory_bytes - other.memory_bytes)

    def largest(self, other: Amounts) -> Amounts:
        """The larger one of each."""
        return Amounts(
            max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes)
        )

    def smallest(self, other: Amounts) -> Amounts:
        """The smaller one of each."""
        return Amounts(
            min(self.cpu_milli, other.cpu_milli), min(self.memory_bytes, other.memory_bytes)
        )

    def not_negative(self) -> Amounts:
        return Amounts(max(self.cpu_milli, 0), max(self.memory_bytes, 0))


NOTHING = Amounts()


def milli_of(text: Text) -> int:
    """Thousandths of a quantity, rounded away from zero. Raises ProtocolError.

    Most quantities are digits with one short suffix and need no exact arithmetic.
    """
    if isinstance(text, str) and len(text) <= _MAX_DIGITS:
        if text.isdecimal() and text.isascii():
            return int(text) * 1000
        if text[-1:] == "m" and text[:-1].isdecimal() and text.isascii():
            return int(text[:-1])
    return parse_quantity(text).milli


def units_of(text: Text) -> int:
    """The whole units of a quantity, rounded away from zero. Raises ProtocolError."""
    if isinstance(text, str) and len(text) <= _MAX_DIGITS:
        if text.isdecimal() and text.isascii():
            return int(text)
        power = _UNITS_OF_SUFFIX.get(text[-2:])
        if power and len(text) <= _MAX_DIGITS - 9 and text[:-2].isdecimal() and text.isascii():
            return int(text[:-2]) * power
    return parse_quantity(text).value


def amount_of(text: Text | None, resource: str) -> int | None:
    """Milli-cores of ``cpu``, whole units of all else; None where there is no text or none that
    can be read."""
    if text is None:
        return None
    try:
        return milli_of(text) if resource == CPU else units_of(text)
    except ProtocolError:
        return None


def measured(resources: Mapping[str, Text], *needed: str) -> dict[str, int] | None:
    """Return usage by resource, without what cannot be read. None for what is no measurement:
    nothing at all, or CPU or memory that is negative or no number, or lacks where it is needed."""
    found = {
        name: max(amount, 0)
        for name, text in resources.items()
        if (amount := amount_of(text, name)) is not None
    }
    for name in (CPU, MEMORY):
        if name in needed or name in resources:
            amount = amount_of(resources.get(name), name)
            if amount is None or amount < 0:
                return None
    return found or None


def in_normal_form(amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
    """Return amounts with a share of GPUs as cores and memory, the form that the webhook gives to
    pods (docs/reference/protocol.md 6.2)."""
    if GPU_SHARE not in amounts:
        return amounts
    share = amounts[GPU_SHARE]
    rest = {name: amount for name, amount in amounts.items() if name != GPU_SHARE}
    return {GPU_CORE: share, GPU_MEMORY_RATIO: share, **rest}
