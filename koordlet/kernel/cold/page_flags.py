"""Pages one by one: what each is and whose (``/proc/kpageflags``, ``/proc/kpagecgroup``, Linux
``Documentation/admin-guide/mm/pagemap.rst``).

A folio is a page or several that the kernel keeps together. Only the first of them, its head, has
flags and an owner in every kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from koordlet.kernel.host import Words
from koordlet.kernel.parse import ParseError

LRU = 1 << 5
SWAP_BACKED = 1 << 14
"""Anonymous memory and tmpfs; without it a page of the LRU lists is page cache."""
HEAD = 1 << 15
TAIL = 1 << 16
PAGES_IN_WORD = 64
"""Bits in one word of ``page_idle/bitmap``."""
NOBODY = -1
_MOST_ORDER = 13
"""Largest folio of the page cache and of transparent huge pages, on any page size."""
_WORD_ORDER = 6


def head_before(flags: Words, pfn: int) -> int:
    """The head of the folio that page ``pfn``, a tail at the begin of a word, belongs to; NOBODY
    where there is none. A folio lies at a multiple of its size."""
    for order in range(_WORD_ORDER + 1, _MOST_ORDER + 1):
        base = pfn >> order << order
        if base == pfn:
            continue
        found = flags.read(base, 1)
        if found and found[0] & HEAD and not found[0] & TAIL:
            return base
    return NOBODY


class Head(NamedTuple):
    """What a folio is: flags, inode of its owner's cgroup directory, whether it is idle."""

    flags: int
    owner: int
    is_idle: int


NO_HEAD = Head(0, 0, 0)


class Tally:
    """Pages of the LRU lists by the inode of their owner's cgroup: all that were seen, and those
    that were idle."""

    def __init__(self) -> None:
        self.seen: defaultdict[int, int] = defaultdict(int)
        self.anon: defaultdict[int, int] = defaultdict(int)
        self.file: defaultdict[int, int] = defaultdict(int)

    def add(
        self, flags: Sequence[int], owners: Sequence[int], idle: int, lead: Head = NO_HEAD
    ) -> None:
        """The pages of one word, each as the head of its folio is. ``idle``: a bit for each.
        ``lead``: of the folio that begins before the word."""
        head_flags, head_owner, is_idle = lead
        for own_flags, own_owner in zip(flags, owners, strict=False):
            if not own_flags & TAIL:
                head_flags, head_owner, is_idle = own_flags, own_owner, idle & 1
            idle >>= 1
            if head_flags & LRU:
                self.seen[head_owner] += 1
                if is_idle:
                    (self.anon if head_flags & SWAP_BACKED else self.file)[head_owner] += 1


def page_ranges(data: bytes, path: str = "") -> tuple[range, ...]:
    """Page numbers of each zone that has any, holes included (``/proc/zoneinfo``, ``proc(5)``)."""
    found: list[range] = []
    spanned = 0
    for line_no, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if len(words) != 2 or words[0] not in (b"spanned", b"start_pfn:"):
            continue
        if not words[1].isdigit() or len(words[1]) > 20:
            raise ParseError(path, line_no, f"{words[1][:40]!r} is not a decimal number")
        if words[0] == b"spanned":
            spanned = int(words[1])
        elif spanned:
            found.append(range(int(words[1]), int(words[1]) + spanned))
            spanned = 0
    if not found:
        raise ParseError(path, 0, "no zone with pages")
    return tuple(found)
