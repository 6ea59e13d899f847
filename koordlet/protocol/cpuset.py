"""CPU lists in the kernel's text form (``Documentation/admin-guide/cputopology.rst``)."""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.protocol import limits
from koordlet.protocol.memo import Memo

CPUSet = frozenset[int]

# Most cgroups of a node have the same few lists, which are read and written again and again.
_parsed: Memo[str, CPUSet] = Memo(limits.CPU_LIST_CACHE_BYTES)
_formatted: Memo[CPUSet, str] = Memo(limits.CPU_LIST_CACHE_BYTES)


def parse_cpulist(text: str) -> CPUSet:
    """``"0-2,5"`` -> ``{0, 1, 2, 5}``; empty text is the empty set. Parts may overlap.

    The time is linear in the text, which is bounded. Raises ValueError naming the offending part.
    """
    cpus = _parsed.get(text)
    if cpus is None:
        cpus = _parse(text)
        _parsed.put(text, cpus, _memory_bytes(cpus, text))
    return cpus


def _parse(text: str) -> CPUSet:
    if len(text) > limits.CPU_LIST_CHARACTERS:
        most = limits.CPU_LIST_CHARACTERS
        raise ValueError(f"CPU list of {len(text)} characters; at most {most}")
    stripped = text.strip()
    if not stripped:
        return frozenset()
    parts = stripped.split(",")
    if len(parts) > limits.CPU_LIST_PARTS:
        raise ValueError(f"CPU list of {len(parts)} parts; at most {limits.CPU_LIST_PARTS}")
    cpus: set[int] = set()
    ranges: set[tuple[int, int]] = set()
    for part in dict.fromkeys(parts):
        if part.isdigit() and part.isascii() and len(part) <= _DIGITS:
            cpus.add(int(part))
        else:
            ranges.add(_range(part, text))
    if cpus and (highest := max(cpus)) > limits.CPU_ID:
        raise _refused(text, str(highest), f"is above {limits.CPU_ID}")
    # The same range may stand there a thousand times: each CPU of it is added once.
    end = -1
    for low, high in sorted(ranges):
        cpus.update(range(max(low, end + 1), high + 1))
        end = max(end, high)
    return frozenset(cpus)


def _range(part: str, text: str) -> tuple[int, int]:
    first, dash, last = part.strip().partition("-")
    if not (first.isascii() and first.isdigit()) or (
        dash and not (last.isascii() and last.isdigit())
    ):
        raise _refused(text, part, "is neither an id nor a range")
    if max(len(first), len(last)) > _DIGITS:
        raise _refused(text, part, f"is above {limits.CPU_ID}")
    low = int(first)
    high = int(last) if dash else low
    if high < low:
        raise _refused(text, part, "runs backwards")
    if high > limits.CPU_ID:
        raise _refused(text, part, f"is above {limits.CPU_ID}")
    return low, high


_DIGITS = 9


def _refused(text: str, part: str, why: str) -> ValueError:
    shown = text if len(text) <= 64 else f"{text[:64]}..."
    return ValueError(f"CPU list {shown!r}: {part[:64]!r} {why}")


def format_cpulist(cpus: Iterable[int]) -> str:
    """``{5, 0, 2, 1}`` -> ``"0-2,5"``, the canonical form the kernel prints."""
    key = frozenset(cpus)
    text = _formatted.get(key)
    if text is None:
        text = _format(key)
        _formatted.put(key, text, _memory_bytes(key, text))
    return text


def _format(cpus: CPUSet) -> str:
    ordered = sorted(cpus)
    parts: list[str] = []
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(cpu) if first == cpu else f"{first}-{cpu}")
        start = index + 1
    return ",".join(parts)


def _memory_bytes(cpus: CPUSet, text: str) -> int:
    return limits.CPU_BYTES * (len(cpus) + 8) + len(text)
