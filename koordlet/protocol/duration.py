"""Go duration strings: ``300ms``, ``5m0s``, ``1h30m``."""

from __future__ import annotations

import re

from koordlet.protocol.errors import ProtocolError

_NANO_OF_UNIT = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_NANO = 2**63 - 1
_MAX_CHARACTERS = 64


def parse_duration(text: str) -> float:
    """Seconds. Raises ProtocolError; negative durations are refused, nothing here has any use
    for them."""
    if text == "0":
        return 0.0
    position, nano = 0, 0
    while position < len(text) <= _MAX_CHARACTERS:
        part = _PART.match(text, position)
        if part is None:
            break
        whole, _, fraction = part[1].partition(".")
        nano += int(whole + fraction or "0") * _NANO_OF_UNIT[part[2]] // 10 ** len(fraction)
        position = part.end()
    if not text or position < len(text):
        raise ProtocolError(
            f"{text[:_MAX_CHARACTERS]!r} is not a duration such as 300ms, 5m or 1h30m"
        )
    if nano > _MAX_NANO:
        raise ProtocolError(f"{text!r} is longer than the 292 years a duration can hold")
    return nano / 10**9


def format_duration(seconds: float) -> str:
    """The shortest text of whole units: ``300.0`` -> ``5m``, ``0.25`` -> ``250ms``."""
    nano = round(seconds * 10**9)
    if nano == 0:
        return "0s"
    parts = []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, nano = divmod(nano, _NANO_OF_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
