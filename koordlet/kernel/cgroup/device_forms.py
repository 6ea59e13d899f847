"""Files with one line per block device (``blkio.throttle.*``, ``io.max``, ``io.weight`` ...).

The canonical value is text: one line per device that has a setting, ``8:16 1048576`` or
``8:16 enable=1 ...``, sorted by device. A value stands for the whole file: a device that it
does not list has no setting. The kernel takes one device per write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from koordlet.decision.resource import Value
from koordlet.kernel.cgroup.forms import INT64_MAX, OwnPart, parse_int

DEFAULT = "default"
"""The line of io.weight that speaks for all devices without one of their own."""


def _is_device(name: str) -> bool:
    major, colon, minor = name.partition(":")
    return bool(colon) and all(part.isascii() and part.isdigit() for part in (major, minor))


def _order(device: str) -> tuple[int, ...]:
    return () if device == DEFAULT else tuple(int(part) for part in device.split(":"))


def _lines(text: str) -> dict[str, list[str]]:
    """device -> the other tokens of its line."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        device, *rest = line.split() or [""]
        if not device:
            continue
        if device != DEFAULT and not _is_device(device):
            raise ValueError(f"{device!r} in line {line!r} is not a device number MAJ:MIN")
        if device in found:
            raise ValueError(f"device {device} stands twice")
        found[device] = rest
    return found


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text with one line per device")
    return value


@dataclass(frozen=True)
class DeviceNumbers(OwnPart):
    """One number per device. ``key``: its name in a v2 ``key=value`` line; None: the second
    token. ``neutral`` is the number that means no setting, ``clear`` how the file spells it.
    ``explicit``: a device may have that very number as a setting of its own, which stands whatever
    the line for all others says."""

    low: int
    high: int
    neutral: int
    clear: str
    key: str | None = None
    explicit: bool = False

    def parse(self, data: bytes) -> str:
        return self._canonical(self._numbers(data.decode(errors="replace"), self.key))

    def format(self, value: Value) -> bytes:
        return self._encode(self._wanted(value))

    def equal(self, wanted: Value, found: Value) -> bool:
        return self._wanted(wanted) == self._wanted(found)

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        wanted = self._wanted(value)
        present = self._numbers(current().decode(errors="replace"), self.key)
        gone = {device: None for device in present if device not in wanted}
        changed = {d: n for d, n in wanted.items() if present.get(d) != n}
        return self._encode({**gone, **changed}).splitlines()

    def _numbers(self, text: str, key: str | None) -> dict[str, int]:
        """Settings in ``text``; lines that mean no setting left out."""
        numbers: dict[str, int] = {}
        for device, tokens in _lines(text).items():
            if key is not None:
                prefix = f"{key}="
                tokens = [t.removeprefix(prefix) for t in tokens if t.startswith(prefix)]
                if not tokens:
                    continue
            if len(tokens) != 1:
                raise ValueError(f"device {device}: one number expected, found {tokens!r}")
            word = tokens[0]
            if word in ("max", DEFAULT):
                continue
            number = parse_int(word.encode())
            if number != self.neutral or (self.explicit and device != DEFAULT):
                numbers[device] = number
        return numbers

    def _wanted(self, value: Value) -> dict[str, int]:
        numbers = self._numbers(_text(value), None)
        for device, number in numbers.items():
            if not self.low <= number <= self.high:
                raise ValueError(f"device {device}: {number} is outside {self.low}..{self.high}")
        return numbers

    def _encode(self, numbers: Mapping[str, int | None]) -> bytes:
        """None clears."""
        lines = []
        for device in sorted(numbers, key=_order):
            number = numbers[device]
            if number is None:
                # The line for all others has no state "default": it is the default.
                word = str(self.neutral) if device == DEFAULT else self.clear
            else:
                word = str(number)
            lines.append(f"{device} {self.key}={word}" if self.key else f"{device} {word}")
        return "\n".join(lines).encode()

    def _canonical(self, numbers: dict[str, int]) -> str:
        return "\n".join(f"{device} {numbers[device]}" for device in sorted(numbers, key=_order))


@dataclass(frozen=True)
class DeviceFields(OwnPart):
    """``MAJ:MIN key=value ...`` (``io.cost.qos``, ``io.cost.model``). ``off`` is what means no
    setting: its first field, where the others are not set differently. ``low`` bounds every
    number."""

    off: str
    low: int

    def parse(self, data: bytes) -> str:
        return self._encode(self._settings(data.decode(errors="replace")))

    def format(self, value: Value) -> bytes:
        settings = self._settings(_text(value))
        for device, fields in settings.items():
            for field, word in fields.items():
                number = _decimal(word)
                if number is not None and not self.low <= number <= INT64_MAX:
                    raise ValueError(
                        f"device {device}: {field}={word} is outside {self.low}..{INT64_MAX}"
                    )
        return self._encode(settings).encode()

    def equal(self, wanted: Value, found: Value) -> bool:
        """The kernel prints more fields than were set, and 95 as 95.00."""
        want, have = self._settings(_text(wanted)), self._settings(_text(found))
        return want.keys() == have.keys() and all(
            _same(word, have[device].get(field))
            for device, fields in want.items()
            for field, word in fields.items()
        )

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        wanted = self.format(value).splitlines()
        listed = self._settings(_text(value))
        present = self._settings(current().decode(errors="replace"))
        gone = sorted((d for d in present if d not in listed), key=_order)
        return [f"{device} {self.off}".encode() for device in gone] + wanted

    def _settings(self, text: str) -> dict[str, dict[str, str]]:
        settings: dict[str, dict[str, str]] = {}
        for device, tokens in _lines(text).items():
            fields: dict[str, str] = {}
            for token in tokens:
                field, equals, word = token.partition("=")
                if not equals or not field or not word:
                    raise ValueError(f"device {device}: {token!r} is not key=value")
                fields[field] = word
            if not self._is_off(fields):
                settings[device] = fields
        return settings

    def _is_off(self, fields: Mapping[str, str]) -> bool:
        (first, off), *others = (field.split("=") for field in self.off.split())
        return fields.get(first) == off and all(
            fields.get(field, word) == word for field, word in others
        )

    @staticmethod
    def _encode(settings: dict[str, dict[str, str]]) -> str:
        return "\n".join(
            " ".join([device, *(f"{field}={word}" for field, word in settings[device].items())])
            for device in sorted(settings, key=_order)
        )


def _decimal(word: str) -> float | None:
    if not word.isascii() or not word.removeprefix("-").replace(".", "", 1).isdigit():
        return None
    return float(word)


def _same(wanted: str, found: str | None) -> bool:
    if found is None or wanted == found:
        return wanted == found
    number = _decimal(wanted)
    return number is not None and number == _decimal(found)
