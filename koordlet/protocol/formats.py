"""Text formats that a field may be written in, by the name its type carries.

A field typed ``Annotated[int, Meta(extra={"format": "cpu"})]`` is text in the document and a
number of milli-cores in memory; ``parse`` goes one way, ``render`` the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from koordlet.protocol.cpuset import format_cpulist, parse_cpulist
from koordlet.protocol.duration import format_duration, parse_duration
from koordlet.protocol.quantity import NANO, Format, Quantity, parse_quantity


class TextFormat(NamedTuple):
    """``parse`` raises ValueError. ``numbers``: a bare JSON number is taken too."""

    what: str
    parse: Callable[[Any], Any]
    render: Callable[[Any], str]
    numbers: bool = False


def _quantity_text(text: str) -> str:
    parse_quantity(text)
    return text


def _positive(quantity: Quantity) -> Quantity:
    if quantity.nano < 0:
        raise ValueError(f"{quantity} is negative")
    return quantity


FORMATS: dict[str, TextFormat] = {
    "quantity": TextFormat("a quantity such as 500m or 1Gi", parse_quantity, str, True),
    "quantity-text": TextFormat("a quantity such as 500m or 1Gi", _quantity_text, str),
    "cpu": TextFormat(
        'an amount of CPU such as "500m" or "2"',
        lambda text: _positive(parse_quantity(text)).milli,
        lambda milli: str(Quantity(milli * NANO // 1000)),
        True,
    ),
    "bytes": TextFormat(
        'an amount of bytes such as "128Mi"',
        lambda text: _positive(parse_quantity(text)).value,
        lambda size: str(Quantity(size * NANO, Format.BINARY)),
        True,
    ),
    "cpulist": TextFormat("a CPU list such as 0-3,8", parse_cpulist, format_cpulist),
    "duration": TextFormat("a duration such as 30s or 1h30m", parse_duration, format_duration),
}
