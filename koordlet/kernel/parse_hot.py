"""Parsers for the hot path: the few numbers that a thousand files a second are read for.

Each gives what its counterpart in ``parse`` gives, at a fraction of the cost, and like those
raises ParseError and nothing else.
"""

from __future__ import annotations

from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.parse import ParseError, flat_keyed, integer, line_at, memory_stat


def cfs_periods(data: bytes, path: str = "") -> tuple[int, int]:
    """nr_periods and nr_throttled of ``cpu.stat``, which v1 prints first."""
    words = data.split(None, 4)
    if words[0:4:2] == [b"nr_periods", b"nr_throttled"] and len(words) > 3:
        return integer(words[1], path), integer(words[3], path)
    periods, throttled = flat_keyed(data, (b"nr_periods", b"nr_throttled"), path)
    return periods, throttled


# Both versions print these five one after the other, which makes one search and one split do.
_RUN_V2 = [b"inactive_anon", b"active_anon", b"inactive_file", b"active_file", b"unevictable"]
_RUN_V1 = [b"total_" + key for key in _RUN_V2]
_RUN_BYTES = 256


def memory_in_use(data: bytes, path: str = "") -> tuple[int, int]:
    """``usage_bytes`` and ``usage_with_page_cache_bytes`` of ``memory_stat``."""
    start, keys = line_at(data, b"total_inactive_anon "), _RUN_V1
    if start < 0:
        start, keys = line_at(data, b"inactive_anon "), _RUN_V2
    words = data[start : start + _RUN_BYTES].split(None, 10) if start >= 0 else []
    if words[0:10:2] == keys:
        try:
            used = int(words[1]) + int(words[3]) + int(words[9])
            return used, used + int(words[5]) + int(words[7])
        except (ValueError, IndexError):
            pass  # the full parser says what is wrong
    stat = memory_stat(data, path)
    return stat.usage_bytes, stat.usage_with_page_cache_bytes


def memory_available_bytes(data: bytes, path: str = "") -> int:
    """MemAvailable of ``/proc/meminfo``."""
    start = data.find(b"MemAvailable:")
    end = data.find(b" kB", start)
    if start < 0 or end < 0:
        raise ParseError(path, 0, "no line 'MemAvailable: <number> kB'")
    return 1024 * integer(data[start + 13 : end].strip(), path)


_NUMA_RUN = (b"\nhierarchical_file=", b"\nhierarchical_anon=", b"\nhierarchical_unevictable=")


def numa_in_use(data: bytes, path: str = "", page_bytes: int = PAGE_BYTES) -> tuple[int, int]:
    """What ``memory_in_use`` gives, from ``memory.numa_stat`` of v1: the same LRU lists, added
    up by the kernel, in a quarter of the lines. v2 has no sums there."""
    pages = []
    for key in _NUMA_RUN:
        start = data.find(key) + len(key)
        word = data[start : data.find(b" ", start)]  # the nodes follow the sum
        if not word.isdigit() or len(word) > 20 or start < len(key):
            raise ParseError(path, 0, f"no line {key[1:].decode()}<number>")
        pages.append(int(word))
    used = (pages[1] + pages[2]) * page_bytes
    return used, used + pages[0] * page_bytes


def pressure_avg10(data: bytes, path: str = "") -> tuple[float, float | None]:
    """Percent stalled over the last 10 s, of ``some`` and of ``full`` (None without that line),
    at a tenth of the cost of ``pressure``."""
    full = data.find(b"\nfull ")
    some_avg10 = _avg10(data, 0, b"some avg10=", path)
    return some_avg10, None if full < 0 else _avg10(data, full + 1, b"full avg10=", path)


def _avg10(data: bytes, start: int, prefix: bytes, path: str) -> float:
    end = data.find(b" ", start + len(prefix))
    text = data[start + len(prefix) : end]
    if not data.startswith(prefix, start) or end < 0 or not text.replace(b".", b"", 1).isdigit():
        message = f"line does not start with {prefix.decode()}<number>"
        raise ParseError(path, 2 if start else 1, message)
    return float(text)


def pressure_some_total_us(data: bytes, path: str = "") -> int:
    """Only the stall time of the ``some`` line, for who asks many times a second."""
    start = data.find(b" total=")
    if not data.startswith(b"some ") or start < 0:
        raise ParseError(path, 1, "no line 'some' with a total")
    end = data.find(b"\n", start)
    return integer(data[start + 7 : end if end >= 0 else None], path)
