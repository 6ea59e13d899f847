"""How a cgroup file holds a value: one class per shape of file.

Values are canonical (``decision.resource``): in the unit of the v1 file, -1 for unlimited. A
form's ``format`` raises ValueError for what the file cannot hold, ``parse`` for what is not in
the file's format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koordlet.decision.cpu_amounts import MAX_SHARES
from koordlet.decision.resource import MIN_SHARES, UNLIMITED, Value
from koordlet.kernel.cgroup.conversions import (
    MIN_WEIGHT,
    PAGE_BYTES,
    USER_HZ,
    same_shares_on_v2,
    shares_to_modern_weight,
    shares_to_weight,
    weight_to_shares,
)
from koordlet.protocol.cpuset import format_cpulist, parse_cpulist

INT64_MAX = 2**63 - 1
# A page counter at its limit is the largest multiple of the page size below 2**63; 64 KiB is
# the largest page size.
UNLIMITED_FROM = INT64_MAX - 65535


def parse_int(data: bytes) -> int:
    """Decimal only: ``int`` alone would also take ``1_000`` and other digits."""
    text = data.strip()
    if not text.removeprefix(b"-").isdigit() or len(text) > 20:
        raise ValueError(f"{data[:40]!r} is not a decimal number")
    return int(text)


def _integer(value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")
    return value


class Form:
    """Text as it stands, not writable. Base of the others."""

    def parse(self, data: bytes) -> Value:
        return data.decode(errors="replace").rstrip("\n")

    def format(self, value: Value) -> bytes:
        raise ValueError("the file is read-only")

    def equal(self, wanted: Value, found: Value) -> bool:
        return wanted == found

    def made(self, written: Value, found: Value) -> bool:
        """Whether writing ``written`` gives a file that reads as ``found``; stricter than ``equal``
        where others write the same value differently."""
        return self.equal(written, found)

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        """The ``write(2)`` calls that bring the file to ``value``; ``current`` reads it now."""
        return [self.format(value)]

    def raw_writes(self, data: bytes, current: Callable[[], bytes]) -> list[bytes]:
        """The same for what was read from the file before: verbatim, where that is possible."""
        return [data.rstrip(b"\n") or b"\n"]


class OwnPart(Form):
    """A file that takes a line per write, or holds more than this resource: bytes read before
    are put back by way of this resource's part of them."""

    def raw_writes(self, data: bytes, current: Callable[[], bytes]) -> list[bytes]:
        return self.writes(self.parse(data), current)


@dataclass(frozen=True)
class Number(Form):
    """One integer. ``unlimited`` is the text for -1, None where the file has no such state.

    ``by_page``: the kernel rounds down to whole pages, so equal means the same page count.
    """

    low: int
    high: int = INT64_MAX
    unlimited: bytes | None = None
    by_page: bool = False

    def parse(self, data: bytes) -> int:
        if self.unlimited is None:
            return parse_int(data)
        text = data.strip()
        number = UNLIMITED if text == b"max" else parse_int(text)
        return UNLIMITED if number < 0 or number >= UNLIMITED_FROM else number

    def format(self, value: Value) -> bytes:
        number = _integer(value)
        if self.unlimited is not None and (number == UNLIMITED or number >= UNLIMITED_FROM):
            return self.unlimited
        if not self.low <= number <= self.high:
            extra = " and not -1 (unlimited)" if self.unlimited is not None else ""
            raise ValueError(f"{number} is outside {self.low}..{self.high}{extra}")
        return b"%d" % number

    def equal(self, wanted: Value, found: Value) -> bool:
        a, b = self._normal(wanted), self._normal(found)
        return a == b or (self.by_page and min(a, b) >= 0 and a // PAGE_BYTES == b // PAGE_BYTES)

    def _normal(self, value: Value) -> int:
        number = _integer(value)
        return UNLIMITED if self.unlimited is not None and number >= UNLIMITED_FROM else number


class FreezerState(Form):
    """``freezer.state`` of v1 as the 0 and 1 of v2's ``cgroup.freeze``. FREEZING counts as
    frozen: it becomes FROZEN as soon as the last task has noticed."""

    def parse(self, data: bytes) -> int:
        word = data.strip()
        if word not in (b"THAWED", b"FREEZING", b"FROZEN"):
            raise ValueError(f"{data[:40]!r} is not THAWED, FREEZING or FROZEN")
        return int(word != b"THAWED")

    def format(self, value: Value) -> bytes:
        if value not in (0, 1):
            raise ValueError(f"{value!r} is not 0 or 1")
        return b"FROZEN" if value else b"THAWED"

    def raw_writes(self, data: bytes, current: Callable[[], bytes]) -> list[bytes]:
        return [self.format(self.parse(data))]


class Weight(Form):
    """``cpu.weight`` spoken of in shares. ``modern``: by which rule it is written."""

    def __init__(self, *, modern: bool = False) -> None:
        self._rule = shares_to_modern_weight if modern else shares_to_weight
        self._modern = modern

    def parse(self, data: bytes) -> int:
        # Kernels before 6.10 print 0 for the weight of a cgroup with cpu.idle = 1.
        return weight_to_shares(max(parse_int(data), MIN_WEIGHT))

    def format(self, value: Value) -> bytes:
        shares = _integer(value)
        if not MIN_SHARES <= shares <= MAX_SHARES:
            raise ValueError(f"cpu.shares {shares} is outside {MIN_SHARES}..{MAX_SHARES}")
        return b"%d" % self._rule(shares)

    def equal(self, wanted: Value, found: Value) -> bool:
        if self._modern:
            return self.made(wanted, found)
        return same_shares_on_v2(_integer(wanted), _integer(found))

    def made(self, written: Value, found: Value) -> bool:
        try:
            weight = b"%d" % shares_to_weight(_integer(found))
            return written == found or self.format(written) == weight
        except ValueError:
            return False


def _cpu_max(data: bytes) -> tuple[bytes, int]:
    fields = data.split()
    if len(fields) != 2:
        raise ValueError(f"{data[:40]!r} is not 'QUOTA|max PERIOD'")
    return fields[0], parse_int(fields[1])


@dataclass(frozen=True)
class MaxQuota(OwnPart):
    """First field of ``cpu.max``. Written alone: the kernel then keeps the period."""

    number: Number

    def parse(self, data: bytes) -> int:
        return self.number.parse(_cpu_max(data)[0])

    def format(self, value: Value) -> bytes:
        return self.number.format(value)

    def equal(self, wanted: Value, found: Value) -> bool:
        return self.number.equal(wanted, found)


@dataclass(frozen=True)
class MaxPeriod(OwnPart):
    """Second field of ``cpu.max``. A lone number there would be the quota, so the quota that is
    in force is written with it."""

    number: Number

    def parse(self, data: bytes) -> int:
        return _cpu_max(data)[1]

    def format(self, value: Value) -> bytes:
        return self.number.format(value)

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        return [_cpu_max(current())[0] + b" " + self.format(value)]


class IdList(Form):
    """CPU or memory node list, canonical text; compared as a set."""

    def parse(self, data: bytes) -> str:
        if not data:
            raise ValueError("no line: an empty list has one")
        return format_cpulist(parse_cpulist(data.decode(errors="replace")))

    def format(self, value: Value) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a list of ids")
        # A write of no bytes would not reach the kernel's parser.
        return format_cpulist(parse_cpulist(value)).encode() or b"\n"

    def equal(self, wanted: Value, found: Value) -> bool:
        return parse_cpulist(str(wanted)) == parse_cpulist(str(found))


class Pids(OwnPart):
    """Process or thread ids, one a line. The kernel moves one per write."""

    def parse(self, data: bytes) -> str:
        return b"\n".join(data.split()).decode(errors="replace")

    def format(self, value: Value) -> bytes:
        ids = [b"%d" % value] if isinstance(value, int) else value.encode().split()
        if not all(each.isdigit() for each in ids):
            raise ValueError(f"{value!r} is not a list of process ids")
        return b"\n".join(ids)

    def equal(self, wanted: Value, found: Value) -> bool:
        return set(self.format(wanted).split()) == set(self.format(found).split())

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        return self.format(value).split()


class ClassId(Form):
    """``net_cls.classid``: decimal when read, decimal or ``0xMMMMmmmm`` when wanted."""

    def parse(self, data: bytes) -> int:
        return self._number(data.decode(errors="replace").strip())

    def format(self, value: Value) -> bytes:
        return b"%d" % self._number(value)

    def equal(self, wanted: Value, found: Value) -> bool:
        return self._number(wanted) == self._number(found)

    @staticmethod
    def _number(value: Value) -> int:
        if isinstance(value, str):
            text = value.strip().lower()
            digits = text.removeprefix("0x")
            if not digits.isascii() or not digits.isalnum():
                raise ValueError(f"{value!r} is neither decimal nor 0x and hexadecimal digits")
            number = int(digits, 16 if digits != text else 10)
        else:
            number = _integer(value)
        if not 0 <= number <= 0xFFFFFFFF:
            raise ValueError(f"{value!r} is outside 0x0..0xffffffff")
        return number


class UsageOfCpuStat(Form):
    """``usage_usec`` of a v2 ``cpu.stat``, in nanoseconds like ``cpuacct.usage``."""

    def parse(self, data: bytes) -> int:
        return _keyed(data, b"usage_usec") * 1000


class TicksOfCpuStat(Form):
    """User and system time of a v2 ``cpu.stat`` as the two lines of ``cpuacct.stat``."""

    def parse(self, data: bytes) -> str:
        user, system = (
            _keyed(data, key) * USER_HZ // 1_000_000 for key in (b"user_usec", b"system_usec")
        )
        return f"user {user}\nsystem {system}"


def _keyed(data: bytes, key: bytes) -> int:
    for line in data.splitlines():
        name, _, number = line.partition(b" ")
        if name == key:
            return parse_int(number)
    raise ValueError(f"no line {key.decode()!r}")
