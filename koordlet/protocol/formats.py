"""Text formats that a field may be written in, by the name its type carries.

A field typed ``Annotated[int, Meta(extra={"format": "cpu"})]`` is text in the document and a
number of milli-cores in memory; ``parse`` goes one way, ``render`` the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from koordlet.protocol.cpuset import format_cpulist, parse_cpulist
from koordlet.protocol.duration import format_duration, parse_duration
from koordlet.protocol.quantity import (
    NANO,
    Format,
    Quantity,
    bytes_text,
    cpu_text,
    parse_quantity,
)


class TextFormat(NamedTuple):
    """``parse`` raises ValueError. ``numbers``: a bare JSON number is taken too."""

    what: str
    parse: Callable[[Any], Any]
    render: Callable[[Any], str]
    numbers: bool = False


_FRACTIONS = ("m", "u", "n")


def _not_negative(quantity: Quantity) -> Quantity:
    if quantity.nano < 0:
        raise ValueError(f"{quantity} is negative")
    return quantity


def _whole(value: str | int | float, unit: str) -> Quantity:
    """A quantity of something that has no fractions. A suffix for fractions is a typing error: in
    Kubernetes ``m`` is a thousandth, so that ``512m`` bytes would be less than one."""
    quantity = _not_negative(parse_quantity(value))
    text = str(value)
    if text.endswith(_FRACTIONS):
        suffix, number = text[-1], text[:-1]
        hint = f' (did you mean "{number}M" or "{number}Mi"?)' if suffix == "m" else ""
        raise ValueError(f"{text!r}: suffix {suffix} means a fraction, and {unit} are whole{hint}")
    if quantity.nano % NANO:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return quantity


def _bits_text(text: str) -> str:
    _whole(text, "bits/s")
    return text


def _cpu_milli(value: str | int | float) -> int:
    quantity = _not_negative(parse_quantity(value))
    if quantity.format is Format.BINARY:
        raise ValueError(f'{value!r} is an amount of bytes; write CPU as "500m" or "2"')
    return quantity.milli


FORMATS: dict[str, TextFormat] = {
    "quantity": TextFormat("a quantity such as 500m or 1Gi", parse_quantity, str, True),
    "bits": TextFormat(
        "bits per second such as 100M or 1G", lambda text: _whole(text, "bits/s"), str, True
    ),
    "bits-text": TextFormat("bits per second such as 100M or 1G", _bits_text, str),
    "cpu": TextFormat(
        'an amount of CPU such as "500m" or "2"',
        _cpu_milli,
        cpu_text,
        True,
    ),
    "bytes": TextFormat(
        'an amount of bytes such as "128Mi"',
        lambda text: _whole(text, "bytes").value,
        bytes_text,
        True,
    ),
    "cpulist": TextFormat("a CPU list such as 0-3,8", parse_cpulist, format_cpulist),
    "duration": TextFormat("a duration such as 30s or 1h30m", parse_duration, format_duration),
}
