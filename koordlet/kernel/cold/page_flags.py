"""Pages one by one: what each is and whose (``/proc/kpageflags``, ``/proc/kpagecgroup``, Linux
``Documentation/admin-guide/mm/pagemap.rst``).

A folio is a page or several that the kernel keeps together. Only the first of them, its head, has
flags and an owner in every kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    idle: bool


NO_HEAD = Head(0, 0, False)


def heads(
    flags: Sequence[int], owners: Sequence[int], idle: int, lead: Head = NO_HEAD
) -> Iterator[Head]:
    """For each page of a word the head of its folio. ``lead``: of the folio that begins before
    the word."""
    head = lead
    for number, (flag, owner) in enumerate(zip(flags, owners, strict=False)):
        if not flag & TAIL:
            head = Head(flag, owner, bool(idle >> number & 1))
        yield head


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
