"""How the kernel reads what is written to it: numbers, sizes, CPU lists.

Written from the behaviour of kstrtox, memparse and bitmap_parselist as seen on a real kernel
(tests/conformance), not from koordlet's own parsers: errors must not cancel out.
"""

from __future__ import annotations

import errno
import os
import string
from collections.abc import Iterator
from contextlib import contextmanager

PAGE_BYTES = 4096
U64_MAX = (1 << 64) - 1
S64_MAX = (1 << 63) - 1
_SPACE = " \t\n\v\f\r"
_SUFFIXES = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}


def refuse(code: int) -> OSError:
    """The error a kernel function returns; the host adds the path."""
    return OSError(code, os.strerror(code))


@contextmanager
def named(path: str) -> Iterator[None]:
    """Errors of the fake kernel get the path, as those of the real one have it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def c_string(data: bytes) -> str:
    """What the kernel sees of a buffer: everything before the first NUL."""
    return data.split(b"\0", 1)[0].decode("latin-1")


def strip(text: str) -> str:
    return text.strip(_SPACE)


def _digits(text: str, base: int) -> tuple[int, int]:
    """Leading digits of ``text`` in ``base``: (value, how many)."""
    allowed = string.hexdigits if base == 16 else string.digits[:base]
    count = 0
    while count < len(text) and text[count] in allowed:
        count += 1
    return (int(text[:count], base) if count else 0), count


def _base(text: str) -> tuple[str, int]:
    if text[:2] in ("0x", "0X") and len(text) > 2 and text[2] in string.hexdigits:
        return text[2:], 16
    if text[:1] == "0":
        return text, 8
    return text, 10


def u64(text: str) -> int:
    """kstrtoull with base 0: optional ``+``, 0x and 0 prefixes, one trailing newline."""
    digits, base = _base(text.removeprefix("+"))
    value, count = _digits(digits, base)
    if not count or digits[count:] not in ("", "\n"):
        raise refuse(errno.EINVAL)
    if value > U64_MAX:
        raise refuse(errno.ERANGE)
    return value


def s64(text: str) -> int:
    """kstrtoll with base 0."""
    value = -u64(text[1:]) if text.startswith("-") and text[1:2] not in "+-" else u64(text)
    if not -S64_MAX - 1 <= value <= S64_MAX:
        raise refuse(errno.ERANGE)
    return value


def number_in(text: str, low: int, high: int, out_of_range: int) -> int:
    """A signed number of which ``low..high`` is accepted, else errno ``out_of_range``."""
    value = s64(text)
    if not low <= value <= high:
        raise refuse(out_of_range)
    return value


def boolean(text: str) -> int:
    """cgroup core switches: ``0`` or ``1`` after stripping; another number is ERANGE."""
    return number_in(strip(text), 0, 1, errno.ERANGE)


def size_bytes(text: str, unlimited: str, *, saturates: bool = False) -> int | None:
    """page_counter_memparse: bytes rounded down to pages, None = no limit.

    ``unlimited`` is the word for no limit: ``-1`` in v1, ``max`` in v2. ``saturates``: as in Linux
    7.2, where what is too large is no limit instead of what is left of it in 64 bits, and a suffix
    needs a number.
    """
    stripped = strip(text)
    if stripped == unlimited:
        return None
    digits, base = _base(stripped)
    value, count = _digits(digits, base)
    rest = digits[count:]  # no digits at all is 0, as strtoull has it
    if rest and rest[0].lower() in _SUFFIXES and (count or not saturates):
        value <<= _SUFFIXES[rest[0].lower()]
        rest = rest[1:]
    if rest:
        raise refuse(errno.EINVAL)
    pages = (min(value, U64_MAX) if saturates else value & U64_MAX) // PAGE_BYTES
    return None if pages >= S64_MAX // PAGE_BYTES else pages * PAGE_BYTES


def id_list(text: str, bits: int) -> frozenset[int]:
    """bitmap_parselist over ``bits`` bits: commas and spaces separate, ``all`` and ``N`` are
    words, ``a-b:used/group`` strides. EINVAL, ERANGE (id too large) or EOVERFLOW (no int)."""
    ids: set[int] = set()
    for region in text.split("\n", 1)[0].replace(",", " ").split():
        ids.update(_region(region, bits))
    return frozenset(ids)


def _bound(text: str, bits: int) -> tuple[int, str]:
    if text.startswith("N"):
        return bits - 1, text[1:]
    value, count = _digits(text, 10)
    if not count:
        raise refuse(errno.EINVAL)
    if value >= 1 << 32:
        raise refuse(errno.EOVERFLOW)
    return value, text[count:]


def _region(text: str, bits: int) -> list[int]:
    if text[:3].lower() == "all":
        first, last, rest = 0, bits - 1, text[3:]
    else:
        first, rest = _bound(text, bits)
        last = first
        if rest:
            if not rest.startswith("-"):
                raise refuse(errno.EINVAL)
            last, rest = _bound(rest[1:], bits)
    used = group = last + 1
    if rest:
        if not rest.startswith(":"):
            raise refuse(errno.EINVAL)
        used, rest = _bound(rest[1:], bits)
        if not rest.startswith("/"):
            raise refuse(errno.EINVAL)
        group, rest = _bound(rest[1:], bits)
    if rest or first > last or group == 0 or used > group:
        raise refuse(errno.EINVAL)
    if last >= bits:
        raise refuse(errno.ERANGE)
    return [i for i in range(first, last + 1) if (i - first) % group < used]


def print_ids(ids: frozenset[int]) -> str:
    """``%*pbl``: ``0-2,5``."""
    parts: list[str] = []
    for i in sorted(ids):
        if i - 1 in ids:
            continue
        last = i
        while last + 1 in ids:
            last += 1
        parts.append(str(i) if last == i else f"{i}-{last}")
    return ",".join(parts)
