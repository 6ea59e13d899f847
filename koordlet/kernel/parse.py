"""Kernel text to numbers: one parser per format, from bytes, without regular expressions.

Each raises ParseError and nothing else, whatever the bytes. ``path`` only names the file in the
error. Times are nanoseconds, sizes bytes, ``ticks`` 1/USER_HZ s.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from koordlet.decision.names import shown
from koordlet.kernel.cgroup.conversions import PAGE_BYTES


class ParseError(ValueError):
    """``line_no`` counts from 1; 0 means the file as a whole."""

    def __init__(self, path: str, line_no: int, message: str) -> None:
        name = shown(path)
        place = f"{name}:{line_no}" if line_no else name
        super().__init__(f"{place or 'input'}: {message}")
        self.path = path
        self.line_no = line_no
        self.message = message


def _number(word: bytes, path: str, line_no: int) -> int:
    # isdigit first: int would also take "1_000", and refuses absurd lengths by ValueError.
    if word.isdigit() and len(word) <= 20:
        return int(word)
    raise ParseError(path, line_no, f"{word[:40]!r} is not a decimal number")


def integer(data: bytes, path: str = "") -> int:
    """A file of one non-negative number (``cpuacct.usage``, ``memory.current``)."""
    return _number(data.strip(), path, 1)


def flat_keyed(data: bytes, keys: tuple[bytes, ...], path: str = "") -> tuple[int, ...]:
    """The numbers behind ``keys`` in lines ``KEY NUMBER``, in the order of ``keys``.

    Searches for the wanted keys only, each from where the one before was found: cheapest when
    ``keys`` are in the order of the file.
    """
    text = b"\n" + data
    values = []
    position = 0
    for needle in _needles(keys):
        found = text.find(needle, position)
        if found < 0 and (found := text.find(needle)) < 0:
            raise ParseError(path, 0, f"no line {needle.decode(errors='replace').strip()!r}")
        start = found + len(needle)
        position = text.find(b"\n", start)
        if position < 0:
            position = len(text)
        word = text[start:position]
        if not word.isdigit() or len(word) > 20:
            line_no = text.count(b"\n", 0, start)
            raise ParseError(path, line_no, f"{word[:40]!r} is not a decimal number")
        values.append(int(word))
    return tuple(values)


def line_at(data: bytes, start: bytes) -> int:
    """Where the first line that begins with ``start`` is; -1: nowhere."""
    if data.startswith(start):
        return 0
    found = data.find(b"\n" + start)
    return found if found < 0 else found + 1


def has_line(data: bytes, start: bytes) -> bool:
    return line_at(data, start) >= 0


@lru_cache
def _needles(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(b"\n%b " % key for key in keys)


class Throttling(NamedTuple):
    """Counters of CFS bandwidth control, since the cgroup was made."""

    nr_periods: int
    nr_throttled: int
    throttled_ns: int


def cpu_stat(data: bytes, path: str = "") -> Throttling:
    """``cpu.stat`` of v1 or v2. All three counters must be there: a v2 cgroup without the cpu
    controller lacks them, and the root cgroup on v2 too."""
    if has_line(data, b"throttled_time "):  # v1; in nanoseconds
        return Throttling(
            *flat_keyed(data, (b"nr_periods", b"nr_throttled", b"throttled_time"), path)
        )
    periods, throttled, us = flat_keyed(
        data, (b"nr_periods", b"nr_throttled", b"throttled_usec"), path
    )
    return Throttling(periods, throttled, us * 1000)


def cpu_usage_ns(data: bytes, path: str = "") -> int:
    """v1 ``cpuacct.usage`` (a lone number) or v2 ``cpu.stat`` (``usage_usec``)."""
    if data[:1].isdigit():
        return integer(data, path)
    return flat_keyed(data, (b"usage_usec",), path)[0] * 1000


class RunTimes(NamedTuple):
    """Time of one thread, since it was made."""

    ran_ns: int
    waited_ns: int
    """Ready to run, on a run queue."""


def schedstat(data: bytes, path: str = "") -> RunTimes:
    """``/proc/PID/schedstat`` (Linux ``Documentation/scheduler/sched-stats``)."""
    words = data.split()
    if len(words) < 2:
        raise ParseError(path, 1, "not the three numbers of schedstat")
    return RunTimes(_number(words[0], path, 1), _number(words[1], path, 1))


class MemoryStat(NamedTuple):
    """Hierarchical figures in bytes. ``cache_bytes`` is file on v2, ``rss_bytes`` anon."""

    cache_bytes: int
    rss_bytes: int
    inactive_file_bytes: int
    active_file_bytes: int
    inactive_anon_bytes: int
    active_anon_bytes: int
    unevictable_bytes: int

    @property
    def usage_bytes(self) -> int:
        """Without page cache (docs/reference/metrics.md 2.2)."""
        return self.inactive_anon_bytes + self.active_anon_bytes + self.unevictable_bytes

    @property
    def usage_with_page_cache_bytes(self) -> int:
        return self.usage_bytes + self.active_file_bytes + self.inactive_file_bytes


# In the order of the files.
_LRU = (b"inactive_anon", b"active_anon", b"inactive_file", b"active_file", b"unevictable")
_MEMORY_STAT_V2 = (b"anon", b"file", *_LRU)
_MEMORY_STAT_V1 = tuple(b"total_" + key for key in (b"cache", b"rss", *_LRU))


def memory_stat(data: bytes, path: str = "") -> MemoryStat:
    """``memory.stat`` of v1 (the ``total_`` lines) or v2; every line used must be there."""
    v2 = not has_line(data, b"total_rss ")
    first, second, inactive_anon, active_anon, inactive_file, active_file, unevictable = flat_keyed(
        data, _MEMORY_STAT_V2 if v2 else _MEMORY_STAT_V1, path
    )
    cache, rss = (second, first) if v2 else (first, second)
    return MemoryStat(
        cache, rss, inactive_file, active_file, inactive_anon, active_anon, unevictable
    )


class NumaMemory(NamedTuple):
    """Memory of a cgroup and its descendants on one node. ``total_bytes`` counts page cache
    and, where the kernel tells it, kernel memory; ``without_cache_bytes`` is the counterpart of
    ``MemoryStat.usage_bytes``."""

    total_bytes: int
    without_cache_bytes: int


_NUMA_V1_TOTAL = (b"hierarchical_total",)
_NUMA_V1_USED = (b"hierarchical_anon", b"hierarchical_unevictable")
_NUMA_V2_TOTAL = (
    *(b"anon", b"file", b"kernel_stack", b"pagetables"),
    *(b"slab_reclaimable", b"slab_unreclaimable"),
)
_NUMA_V2_USED = (b"inactive_anon", b"active_anon", b"unevictable")


def numa_stat(data: bytes, path: str = "", page_bytes: int = PAGE_BYTES) -> dict[int, NumaMemory]:
    """``memory.numa_stat`` by node id; ids may have gaps.

    v1 counts pages, and only its ``hierarchical_`` lines include descendants; v2 counts bytes.
    """
    lines: dict[bytes, dict[int, int]] = {}
    for line_no, line in enumerate(data.split(b"\n"), 1):
        first, *rest = line.split() or [b""]
        if not first:
            continue
        lines[first.partition(b"=")[0]] = _by_node(rest, path, line_no)
    v1 = b"hierarchical_total" in lines
    unit = page_bytes if v1 else 1
    required = (
        (*_NUMA_V1_TOTAL, *_NUMA_V1_USED)
        if v1
        else (b"anon", b"file", b"inactive_anon", b"active_anon")
    )
    for key in required:
        if key not in lines:
            raise ParseError(path, 0, f"no line {key.decode()!r}")

    def total(keys: tuple[bytes, ...], node: int) -> int:
        return unit * sum(lines[key].get(node, 0) for key in keys if key in lines)

    totals, used = (_NUMA_V1_TOTAL, _NUMA_V1_USED) if v1 else (_NUMA_V2_TOTAL, _NUMA_V2_USED)
    nodes = sorted({node for key in required for node in lines[key]})
    return {node: NumaMemory(total(totals, node), total(used, node)) for node in nodes}


def _by_node(words: list[bytes], path: str, line_no: int) -> dict[int, int]:
    counts = {}
    for word in words:
        name, _, count = word.partition(b"=")
        if name[:1] != b"N":
            raise ParseError(path, line_no, f"{word[:40]!r} is not N<node>=<count>")
        counts[_number(name[1:], path, line_no)] = _number(count, path, line_no)
    return counts


class PressureLine(NamedTuple):
    """Share of time stalled, percent, over the last 10, 60 and 300 s; stall time so far."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class Pressure(NamedTuple):
    """``full`` is None where the kernel has no such line (cpu before 5.13)."""

    some: PressureLine
    full: PressureLine | None


_PRESSURE_FIELDS = (b"avg10", b"avg60", b"avg300", b"total")


def pressure(data: bytes, path: str = "") -> Pressure:
    """A PSI file. An empty one is an error: the kernel gives none while PSI is off."""
    some: PressureLine | None = None
    full: PressureLine | None = None
    for line_no, line in enumerate(data.splitlines(), 1):
        kind, *words = line.split() or [b""]
        if kind == b"some":
            some = _pressure_line(words, path, line_no)
        elif kind == b"full":
            full = _pressure_line(words, path, line_no)
        else:
            raise ParseError(path, line_no, f"{line[:40]!r} starts neither with some nor with full")
    if some is None:
        raise ParseError(path, 0, "no line 'some'")
    return Pressure(some, full)


def _pressure_line(words: list[bytes], path: str, line_no: int) -> PressureLine:
    pairs = [word.partition(b"=") for word in words]
    if tuple(name for name, _, _ in pairs) != _PRESSURE_FIELDS:
        raise ParseError(path, line_no, "fields are not avg10= avg60= avg300= total=")
    averages = []
    for _, _, text in pairs[:3]:
        if not text.replace(b".", b"", 1).isdigit() or len(text) > 20:
            raise ParseError(path, line_no, f"{text[:40]!r} is not a percentage")
        averages.append(float(text))
    avg10, avg60, avg300 = averages
    return PressureLine(avg10, avg60, avg300, _number(pairs[3][2], path, line_no))


class CpuTicks(NamedTuple):
    """Busy time: user + nice + system + irq + softirq; of the node and by CPU id."""

    node: int
    cpus: dict[int, int]


def proc_stat(data: bytes, path: str = "") -> CpuTicks:
    """``/proc/stat``. Idle, iowait, steal and guest do not count
    (docs/reference/metrics.md 2.3)."""
    node: int | None = None
    cpus: dict[int, int] = {}
    line_no = start = 0
    # The cpu lines come first; the intr line behind them can be tens of KiB.
    while data.startswith(b"cpu", start):
        line_no += 1
        end = data.find(b"\n", start)
        line = data[start:] if end < 0 else data[start:end]
        words = line.split()
        if len(words) <= 7:
            raise ParseError(path, line_no, f"{len(words) - 1} fields, at least 7 expected")
        numbers = [_number(words[i], path, line_no) for i in (1, 2, 3, 6, 7)]
        if words[0] == b"cpu":
            node = sum(numbers)
        else:
            cpus[_number(words[0][3:], path, line_no)] = sum(numbers)
        if end < 0:
            break
        start = end + 1
    if node is None:
        raise ParseError(path, 0, "no line 'cpu'")
    return CpuTicks(node, cpus)


class MemInfo(NamedTuple):
    """Bytes. ``available_bytes`` and ``swap_free_bytes`` are None in a node's file, which lacks
    them. ``total_bytes`` is without pools of huge pages, in a node's file with them: memory of a
    pool is nobody's until he asks for huge pages."""

    total_bytes: int
    free_bytes: int
    available_bytes: int | None
    active_file_bytes: int
    inactive_file_bytes: int
    slab_reclaimable_bytes: int
    swap_free_bytes: int | None = None

    @property
    def used_without_cache_bytes(self) -> int:
        """What a NUMA node uses (docs/reference/metrics.md 2.3), at least 0."""
        file_bytes = self.active_file_bytes + self.inactive_file_bytes
        return max(self.total_bytes - self.free_bytes - file_bytes - self.slab_reclaimable_bytes, 0)


_MEMINFO = (b"MemTotal", b"MemFree", b"Active(file)", b"Inactive(file)", b"SReclaimable")
_MEMINFO_WANTED = frozenset((*_MEMINFO, b"MemAvailable", b"SwapFree", b"Hugetlb"))


def meminfo(data: bytes, path: str = "") -> MemInfo:
    """``/proc/meminfo`` or ``node<N>/meminfo`` (whose lines start with ``Node N``)."""
    found: dict[bytes, int] = {}
    for line_no, line in enumerate(data.split(b"\n"), 1):
        name, colon, rest = line.partition(b":")
        if not colon:
            continue
        key = name.rpartition(b" ")[2]
        if key in _MEMINFO_WANTED:
            words = rest.split()
            if len(words) != 2 or words[1] != b"kB":
                raise ParseError(path, line_no, f"{rest[:40]!r} is not a number of kB")
            found[key] = 1024 * _number(words[0], path, line_no)
    for key in _MEMINFO:
        if key not in found:
            raise ParseError(path, 0, f"no line {key.decode()!r}")
    total, free, active, inactive, slab = (found[key] for key in _MEMINFO)
    available, swap_free = found.get(b"MemAvailable"), found.get(b"SwapFree")
    total = max(total - found.get(b"Hugetlb", 0), 0)
    return MemInfo(total, free, available, active, inactive, slab, swap_free)
