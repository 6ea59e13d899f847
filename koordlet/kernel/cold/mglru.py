"""The multi-generational LRU of Linux 6.1 and later (``Documentation/admin-guide/mm/
multigen_lru.rst``): pages of each memory cgroup and NUMA node, by generation.

An aging looks at the accessed bits of all page tables of a cgroup. It puts what was accessed since
the last one into the generation that is youngest then, and begins another. The kernel ages when it
is short of memory; here it is asked to (``+ MEMCG NODE GENERATION SWAP FORCE``), on a slow rhythm.
So what is in a generation has not been accessed between the birth of the next one and the last
aging.

Only accesses through page tables count. What is used by ``read(2)`` alone stays in the oldest
generation and passes for cold, however hot it is.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.cold.cold import Cold, NotAvailable, Scan, upwards
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError

LEAST_PAGES = 256
"""A cgroup with fewer pages on a NUMA node is not worth a walk through its page tables."""
MOST_AGINGS = 10_000
"""In one scan, against a machine with absurdly many cgroups."""
_LISTS_AT_ONCE = 40
_LONGEST_LINE = 100
"""Of a generation: four numbers of 20 digits at most."""
_WHOLE_SHARE = 0.9
"""Of the interval: two scans come a little early or late."""
_ODD = tuple(b"%x" % digit for digit in range(1, 16, 2))
"""Last digit of ``enabled``, a hexadecimal mask, where the lowest bit is set: the main switch."""
_GONE = (errno.EINVAL, errno.ERANGE)
"""What the kernel says of a cgroup that has gone since it was listed."""
_AGED = errno.EEXIST
"""The kernel has aged it itself meanwhile. (Linux 6.14 and later say so, earlier ones nothing.)"""
_NEVER = 1_000_000_000
"""So many agings away is a generation that no kernel has: an order for it is refused with EINVAL.
One for a generation that is past is not: since 6.14 the kernel then ages."""
LOCKDOWN = (
    "boot with lockdown=none (kernel_lockdown(7): Secure Boot switches it on), or take another "
    "method"
)


class Generation(NamedTuple):
    number: int
    age_ms: int
    anon_pages: int
    file_pages: int


class Lruvec(NamedTuple):
    """The lists of one memory cgroup alone, without those below it, on one NUMA node; oldest
    generation first."""

    memcg: int
    cgroup: str
    node: int
    generations: tuple[Generation, ...]

    @property
    def pages(self) -> int:
        return sum(each.anon_pages + each.file_pages for each in self.generations)


def parse(data: bytes, path: str = "") -> Iterator[Lruvec]:
    """``lru_gen`` of debugfs, as it goes. Raises ParseError."""
    memcg, cgroup, node = -1, "", -1
    generations: list[Generation] = []
    for line_no, line in enumerate(data.split(b"\n"), 1):
        is_memcg = line.startswith(b"memcg ")
        if is_memcg or line.startswith(b" node ") or not line:
            if generations:
                yield Lruvec(memcg, cgroup, node, tuple(generations))
                generations = []
            words = line.split(None, 2)
            if is_memcg:
                memcg, node = _number(words[1:2], path, line_no), -1
                cgroup = os.fsdecode(words[2]).strip("/") if len(words) == 3 else ""
            elif words:
                node = _number(words[1:2], path, line_no)
            continue
        fields = line.split()
        plain = len(fields) == 4 and b"".join(fields).isdigit() and len(line) <= _LONGEST_LINE
        if memcg < 0 or node < 0 or not plain:
            raise ParseError(path, line_no, f"{line[:60]!r} is no generation of a memcg and node")
        generations.append(Generation(*map(int, fields)))


def _number(words: list[bytes], path: str, line_no: int) -> int:
    if words and words[0].isdigit() and len(words[0]) <= 20:
        return int(words[0])
    raise ParseError(path, line_no, f"{b' '.join(words)[:40]!r} is not a decimal number")


def cold_pages(generations: Sequence[Generation], idle_ms: float) -> tuple[int, int]:
    """(anonymous, file) pages that had not been accessed for at least ``idle_ms`` when the lists
    were aged last."""
    anon = file = 0
    for older, younger in pairwise(generations):
        if younger.age_ms - generations[-1].age_ms >= idle_ms:
            anon += older.anon_pages
            file += older.file_pages
    return anon, file


class Mglru:
    """Knows something from the second scan on: what is cold has then been through a whole interval
    between two agings of ours."""

    name = "mglru"

    def __init__(self, host: Host, interval_s: float, sys_root: str = "/sys") -> None:
        self._host = host
        self._idle_ms = interval_s * 1000 * _WHOLE_SHARE
        self._switch = f"{sys_root}/kernel/mm/lru_gen/enabled"
        self._path = f"{sys_root}/kernel/debug/lru_gen"
        self._aged: set[tuple[int, str, int]] = set()

    def check(self) -> str:
        if not self._host.exists(self._switch):
            why = f"{self._switch} does not exist (ENOENT)"
            raise NotAvailable(why, "use a kernel of 6.1 or later with CONFIG_LRU_GEN")
        enabled = self._host.read(self._switch).strip()
        if enabled[-1:] not in _ODD:
            why = f"{self._switch} is {enabled.decode()}: the kernel uses the older lists"
            raise NotAvailable(why, f"echo y > {self._switch}")
        try:
            root = next(parse(self._host.read(self._path), self._path), None)
            if root is None:
                raise NotAvailable(f"{self._path} lists no memory cgroup")
            self._order_nothing(root)
        except FileNotFoundError:
            why = f"{self._path} does not exist (ENOENT)"
            mount = f"mount -t debugfs debugfs {self._path.rpartition('/')[0]}"
            raise NotAvailable(why, mount) from None
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            why = f"{self._path} cannot be opened (EPERM): the kernel is locked down"
            raise NotAvailable(why, LOCKDOWN) from error
        return f"wrote an aging to {self._path} of a generation that does not exist (EINVAL)"

    def scan(self, cgroups: frozenset[str]) -> Scan:
        aged: set[tuple[int, str, int]] = set()
        for number, each in enumerate(parse(self._host.read(self._path), self._path)):
            if each.pages >= LEAST_PAGES and len(aged) < MOST_AGINGS:
                if self._age(each):
                    aged.add((each.memcg, each.cgroup, each.node))
                yield
            elif not number % _LISTS_AT_ONCE:
                yield
        before, self._aged = self._aged, aged
        anon: defaultdict[str, int] = defaultdict(int)
        file: defaultdict[str, int] = defaultdict(int)
        for number, each in enumerate(parse(self._host.read(self._path), self._path)):
            key = (each.memcg, each.cgroup, each.node)
            if key in aged and key in before:
                cold = cold_pages(each.generations, self._idle_ms)
                for cgroup in upwards(each.cgroup):
                    if not cgroup or cgroup in cgroups:
                        anon[cgroup] += cold[0]
                        file[cgroup] += cold[1]
            if not number % _LISTS_AT_ONCE:
                yield
        return {each: Cold(anon[each] * PAGE_BYTES, file[each] * PAGE_BYTES) for each in anon}

    def _age(self, each: Lruvec) -> bool:
        """With anonymous pages too, and of all page tables, whether or not there is swap."""
        try:
            self._order(each, each.generations[-1].number)
        except OSError as error:
            if error.errno not in (*_GONE, _AGED):
                raise
            return error.errno == _AGED
        return True

    def _order_nothing(self, each: Lruvec) -> None:
        """Shows that the file takes orders, and ages nothing."""
        try:
            self._order(each, each.generations[-1].number + _NEVER)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def _order(self, each: Lruvec, number: int) -> None:
        self._host.write(self._path, b"+ %d %d %d 1 1\n" % (each.memcg, each.node, number))
