"""Small readings of procfs (``proc(5)``)."""

from __future__ import annotations

from typing import NamedTuple

from koordlet.kernel.cgroup.conversions import PAGE_BYTES, USER_HZ
from koordlet.kernel.host import Host
from koordlet.kernel.parse import MemInfo, ParseError, meminfo


class SelfUsage(NamedTuple):
    """What this process has used: CPU seconds since its start, resident bytes, open files."""

    cpu_s: float
    rss_bytes: int
    open_files: int
    threads: int


def memory(host: Host, proc_root: str = "/proc") -> MemInfo:
    path = f"{proc_root}/meminfo"
    return meminfo(host.read(path), path)


def resident_bytes(host: Host, proc_root: str = "/proc") -> int:
    path = f"{proc_root}/self/statm"
    try:
        return int(host.read(path).split()[1]) * PAGE_BYTES
    except (IndexError, ValueError) as error:
        raise ParseError(path, 1, "not the fields of proc(5)") from error


def self_usage(host: Host, proc_root: str = "/proc") -> SelfUsage:
    path = f"{proc_root}/self/stat"
    data = host.read(path)
    # The second field is the command name in parentheses; it may hold spaces and parentheses.
    fields = data[data.rfind(b")") + 1 :].split()
    rss_bytes = resident_bytes(host, proc_root)
    try:
        # Fields 14, 15 (utime, stime) and 20 (threads) of the line; field 3 is fields[0].
        ticks = int(fields[11]) + int(fields[12])
        threads = int(fields[17])
    except (IndexError, ValueError) as error:
        raise ParseError(path, 1, "not the fields of proc(5)") from error
    return SelfUsage(ticks / USER_HZ, rss_bytes, len(host.listdir(f"{proc_root}/self/fd")), threads)


def start_ticks(host: Host, pid: int | str, proc_root: str = "/proc") -> int:
    """When a process started, clock ticks after boot: a pid that was reused has another. ``pid``
    may be ``self``. Raises OSError, ENOENT or ESRCH where it has ended."""
    path = f"{proc_root}/{pid}/stat"
    data = host.read(path)
    # The second field, the name in parentheses, may hold anything; field 22 is wanted.
    fields = data[data.rfind(b")") + 1 :].split()
    if len(fields) < 20 or not fields[19].isdigit():
        raise ParseError(path, 1, "not the fields of proc(5)")
    return int(fields[19])


def process_ticks(host: Host, pid: int, proc_root: str = "/proc") -> tuple[str, int]:
    """Name and CPU time of a process, clock ticks, its ended children not counted. Raises OSError,
    ENOENT or ESRCH where it has ended."""
    path = f"{proc_root}/{pid}/stat"
    data = host.read(path)
    name_end = data.rfind(b")")
    fields = data[name_end + 1 :].split()
    if len(fields) < 13 or not (fields[11] + fields[12]).isdigit():
        raise ParseError(path, 1, "not the fields of proc(5)")
    name = data[data.find(b"(") + 1 : name_end].decode(errors="replace")
    return name, int(fields[11]) + int(fields[12])


def boot_id(host: Host, proc_root: str = "/proc") -> str:
    """Changes with each boot: what was remembered about cgroups before is then void."""
    return host.read(f"{proc_root}/sys/kernel/random/boot_id").decode(errors="replace").strip()


ARM = "ARM"
"""Vendor of a CPU that arm64's /proc/cpuinfo describes, whoever made it."""


def cpu_vendor(host: Host, proc_root: str = "/proc") -> str:
    """``GenuineIntel``, ``AuthenticAMD``, ``ARM`` ...; empty where the kernel does not tell."""
    for line in host.read(f"{proc_root}/cpuinfo").decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "vendor_id":
            return value.strip()
        if name.strip() == "CPU implementer":
            return ARM
    return ""
