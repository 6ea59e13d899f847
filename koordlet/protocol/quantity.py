"""Kubernetes resource quantities, exact down to a billionth.

Rules as in the Kubernetes API: more digits than nano are rounded up (away from zero), and what
exceeds a signed 64-bit integer is capped there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from koordlet.protocol import limits
from koordlet.protocol.errors import ProtocolError

NANO = 10**9
_LARGEST_NANO = (2**63 - 1) * NANO
_MAX_CHARACTERS = limits.QUANTITY_CHARACTERS


class Format(StrEnum):
    """Which suffixes a quantity is printed with."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


_DECIMAL_POWER = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_POWER = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL_POWER.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY_POWER.items()} | {0: ""}


@dataclass(frozen=True, order=True, slots=True)
class Quantity:
    """``nano`` is the value times 10^9. Equality and order ignore the format."""

    nano: int
    format: Format = field(default=Format.DECIMAL, compare=False)

    @property
    def value(self) -> int:
        """The value as an integer, rounded away from zero (bytes, whole CPUs)."""
        return _divide_away(self.nano, NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero (milli-cores)."""
        return _divide_away(self.nano, NANO // 1000)

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that loses nothing."""
        if self.nano == 0:
            return "0"
        whole, rest = divmod(self.nano, NANO)
        if self.format is Format.BINARY and rest == 0 and abs(whole) >= 1024:
            power = 0
            while whole % 1024 == 0 and power < 60:
                whole, power = whole // 1024, power + 10
            return f"{whole}{_BINARY_SUFFIX[power]}"
        number, power = self.nano, -9
        while number % 1000 == 0 and power < 18:
            number, power = number // 1000, power + 3
        if self.format is Format.EXPONENT:
            return f"{number}e{power}" if power else str(number)
        return f"{number}{_DECIMAL_SUFFIX[power]}"


def cpu_text(milli: int) -> str:
    """Milli-cores as a quantity: ``1500m``."""
    return str(Quantity(milli * (NANO // 1000)))


def bytes_text(size: int) -> str:
    """Bytes as a quantity: ``3Gi``."""
    return str(Quantity(size * NANO, Format.BINARY))


def _divide_away(number: int, divisor: int) -> int:
    quotient = -(-abs(number) // divisor)
    return quotient if number >= 0 else -quotient


def parse_quantity(text: str | int | float) -> Quantity:
    """``"500m"``, ``"1.5Gi"``, ``"1e3"``, or a bare number. Raises ProtocolError."""
    source = text if isinstance(text, str) else repr(text)
    if len(source) > _MAX_CHARACTERS:
        raise ProtocolError(f"quantity of {len(source)} characters; at most {_MAX_CHARACTERS}")
    sign = -1 if source.startswith("-") else 1
    body = source[1:] if source[:1] in ("+", "-") else source
    end = 0
    while end < len(body) and (body[end] in "0123456789."):
        end += 1
    whole, _, fraction = body[:end].partition(".")
    if not (whole or fraction) or "." in fraction:
        raise ProtocolError(f"{source!r} is not a quantity such as 500m, 2, 1.5 or 1Gi")
    digits, scale = int(whole + fraction), -len(fraction)
    suffix = body[end:]
    if suffix in _BINARY_POWER:
        return _scaled(sign * (digits << _BINARY_POWER[suffix]), scale, Format.BINARY)
    if suffix in _DECIMAL_POWER:
        return _scaled(sign * digits, scale + _DECIMAL_POWER[suffix], Format.DECIMAL)
    exponent = suffix[1:]
    digits_of_exponent = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if suffix[0] in "eE" and digits_of_exponent.isdecimal() and digits_of_exponent.isascii():
        # Beyond this bound every mantissa is capped or rounded to the same result.
        power = max(-10 * _MAX_CHARACTERS, min(10 * _MAX_CHARACTERS, int(exponent)))
        return _scaled(sign * digits, scale + power, Format.EXPONENT)
    known = ", ".join(suffix for suffix in (*_DECIMAL_POWER, *_BINARY_POWER) if suffix)
    message = f"{source!r} ends in {suffix!r}, which is none of the suffixes {known}"
    if near := _suffixes_like(suffix):
        number = source.removesuffix(suffix)
        message += f" (did you mean {' or '.join(number + each for each in near)}?)"
    raise ProtocolError(message)


def _suffixes_like(suffix: str) -> list[str]:
    """``K``, ``kB`` -> ``k``, ``Ki``; ``GiB`` -> ``Gi``."""
    letter, binary = suffix[0].upper(), suffix[1:2] == "i"
    found = ("k" if letter == "K" else letter, f"{letter}i")
    return [each for each in found[binary:] if each in _DECIMAL_POWER or each in _BINARY_POWER]


def _scaled(number: int, power: int, form: Format) -> Quantity:
    """number * 10^power as a quantity, rounded up to a nano and capped."""
    power += 9
    nano = number * 10**power if power >= 0 else _divide_away(number, 10**-power)
    return Quantity(max(-_LARGEST_NANO, min(_LARGEST_NANO, nano)), form)
