"""kidled of Anolis and Alibaba Cloud kernels: a kernel thread that notes how long each page has
been idle (docs/reference/metrics.md 2.12). It costs nothing to read.

``memory.idle_page_stats`` has one line for each sort of page, with bytes by idle time. A sort is
four letters: clean or dirty, swap or file, evictable or unevictable, inactive or active. Idle time
is in scans: 1 to 2, 2 to 5, 5, 15, 30, 60, 120, and 240 or more.
"""

from __future__ import annotations

import errno

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cold.cold import NODE, Cold, NotAvailable, Scan
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError, integer

BUCKETS = 8
COLD_FROM = 5
"""First of the buckets that count as cold."""
COLD_SCANS = 60
"""What has been idle for so many scans is in these buckets."""
_SCANS = (b"# scans:", b"# page_scans:")  # the latter where kidled looks at slabs too
_FILE = (b"cfei", b"dfei", b"cfui", b"dfui")
_ANON = (b"csei", b"dsei", b"csui", b"dsui")
SWITCH_ON = "set strategies.kidled.enable = true, which makes kidled scan"


def parse(data: bytes, path: str = "") -> Cold:
    """Inactive pages alone, as in the reference. Every one of their lines must be there."""
    rows = {line[:4]: line for line in map(bytes.strip, data.split(b"\n")) if line[:1] != b"#"}
    return Cold(
        anon_bytes=sum(_cold_bytes(rows, row, path) for row in _ANON),
        file_bytes=sum(_cold_bytes(rows, row, path) for row in _FILE),
    )


def _cold_bytes(rows: dict[bytes, bytes], row: bytes, path: str) -> int:
    _, *counts = rows.get(row, b"").split() or [b""]
    if len(counts) != BUCKETS or not all(each.isdigit() and len(each) <= 20 for each in counts):
        raise ParseError(path, 0, f"no line {row.decode()!r} with {BUCKETS} numbers")
    return sum(map(int, counts[COLD_FROM:]))


def scans(data: bytes, path: str = "") -> int | None:
    """How often kidled has scanned since it was switched on or its period was changed, by the head
    of the table; None where that does not say. Raises ParseError."""
    for line in map(bytes.strip, data.split(b"\n")):
        if line.startswith(_SCANS):
            return integer(line.partition(b":")[2], path)
    return None


class Kidled:
    name = "kidled"

    def __init__(self, host: Host, cgroups: Cgroups, sys_root: str = "/sys") -> None:
        self._host = host
        self._cgroups = cgroups
        self._settings = f"{sys_root}/kernel/mm/kidled"

    def check(self) -> str:
        period_s = self._required_period_s()
        try:
            path = self._cgroups.path("", Resource.MEMORY_IDLE_PAGE_STATS)
            parse(self._host.read(path), path)
        except Unsupported as missing:
            raise NotAvailable(missing.why, missing.remedy) from missing
        return f"read {path}, which is up to date within {period_s} s"

    def _required_period_s(self) -> int:
        """Raises NotAvailable where kidled does not scan, or does not add up below a cgroup."""
        period_s, hierarchy = (
            self._setting(name) for name in ("scan_period_in_seconds", "use_hierarchy")
        )
        if not period_s:
            raise NotAvailable(f"{self._settings}/scan_period_in_seconds is 0", SWITCH_ON)
        if not hierarchy:
            why = f"{self._settings}/use_hierarchy is 0: a pod would count without its containers"
            raise NotAvailable(why, SWITCH_ON)
        return period_s

    def _setting(self, name: str) -> int:
        path = f"{self._settings}/{name}"
        try:
            return integer(self._host.read(path), path)
        except FileNotFoundError:
            why = f"{path} does not exist (ENOENT): Anolis and Alibaba Cloud kernels have it"
            raise NotAvailable(why) from None

    def scan(self, cgroups: frozenset[str]) -> Scan:
        """Nothing before kidled has scanned often enough to call a page cold. Raises NotAvailable
        where it has been switched off meanwhile: its table says nothing then."""
        self._required_period_s()
        found: dict[str, Cold] = {}
        for cgroup in (NODE, *sorted(cgroups)):
            try:
                path = self._cgroups.path(cgroup, Resource.MEMORY_IDLE_PAGE_STATS)
                data = self._host.read(path)
                if cgroup == NODE and not _is_old_enough(scans(data, path)):
                    return {}
                found[cgroup] = parse(data, path)
            except Unsupported:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
            yield
        return found


def _is_old_enough(done: int | None) -> bool:
    return done is None or done >= COLD_SCANS
