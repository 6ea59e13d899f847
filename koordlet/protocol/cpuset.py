"""CPU lists in the kernel's text form (``Documentation/admin-guide/cputopology.rst``)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

CPUSet = frozenset[int]

# The reference accepts ids up to 4096 (spec/qos.md 8.5); the bound also keeps a
# hostile "0-99999999999" from exhausting memory.
MAX_CPU_ID = 4096

# Most cgroups of a node have the same few lists, which are read and written again and again.
_LISTS_KEPT = 256


def parse_cpulist(text: str) -> CPUSet:
    """``"0-2,5"`` -> ``{0, 1, 2, 5}``; empty text is the empty set.

    Raises ValueError naming the offending part.
    """
    return _parse(text)


@lru_cache(maxsize=_LISTS_KEPT)
def _parse(text: str) -> CPUSet:
    cpus: set[int] = set()
    stripped = text.strip()
    if not stripped:
        return frozenset()
    shown = text if len(text) <= 64 else f"{text[:64]}..."
    for part in stripped.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit()) or (
            dash and not (last.isascii() and last.isdigit())
        ):
            raise ValueError(f"CPU list {shown!r}: {part[:64]!r} is neither an id nor a range")
        low = int(first)
        high = int(last) if dash else low
        if high < low:
            raise ValueError(f"CPU list {shown!r}: range {part[:64]!r} runs backwards")
        if high > MAX_CPU_ID:
            raise ValueError(f"CPU list {shown!r}: {part[:64]!r} is above {MAX_CPU_ID}")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def format_cpulist(cpus: Iterable[int]) -> str:
    """``{5, 0, 2, 1}`` -> ``"0-2,5"``, the canonical form the kernel prints."""
    return _format(frozenset(cpus))


@lru_cache(maxsize=_LISTS_KEPT)
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
