"""The page frames of the machine: idle page tracking, and what /proc says of each page
(Linux ``mm/page_idle.c``, ``fs/proc/page.c``).

Frames are dealt out when they are first looked at and after each change of the sizes: hot pages of
a cgroup first, then cold ones. Anonymous memory is in huge pages as far as it fills any."""

from __future__ import annotations

import errno
from typing import NamedTuple

from koordlet_fakefs.machine import Machine
from koordlet_fakefs.parse import PAGE_BYTES, refuse
from koordlet_fakefs.resources.memory import states_below
from koordlet_fakefs.tree import Directory, Leaf, WordsLeaf, add_directory

_FIRST_PFN = 4096
_HUGE_PAGES = 512
_LRU, _SWAP_BACKED, _HEAD, _TAIL = 1 << 5, 1 << 14, 1 << 15, 1 << 16


class _Page(NamedTuple):
    flags: int
    owner: int
    is_cold: bool


_FREE = _Page(0, 0, False)


class _Frames:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sizes: object = None
        self._pages: dict[int, _Page] = {}
        self._idle: set[int] = set()
        self.end = _FIRST_PFN + machine.options.memory_bytes // PAGE_BYTES

    def page(self, pfn: int) -> _Page:
        self._deal()
        return self._pages.get(pfn, _FREE)

    def read_word(self, word: int) -> int:
        found = 0
        for bit in range(64):
            pfn = word * 64 + bit
            page = self.page(pfn)
            if pfn in self._idle and not page.is_cold:
                self._idle.discard(pfn)  # it was used
            if pfn in self._idle:
                found |= 1 << bit
        return found

    def write_word(self, word: int, value: int) -> None:
        """Bits that are 0, tails and pages of no list stay as they are."""
        if word * 64 >= self.end:
            raise refuse(errno.ENXIO)
        for bit in range(64):
            page = self.page(word * 64 + bit)
            if value >> bit & 1 and page.flags & _LRU and not page.flags & _TAIL:
                self._idle.add(word * 64 + bit)

    def _deal(self) -> None:
        hierarchy = self._machine.hierarchy_of("memory")
        states = states_below(hierarchy.root) if hierarchy else []
        sizes = [
            (s.group.ino, s.own_anon_bytes, s.own_file_bytes, s.cold_anon_bytes, s.cold_file_bytes)
            for s in states
        ]
        if sizes == self._sizes:
            return
        self._sizes, self._pages, self._idle = sizes, {}, set()
        pfn = _FIRST_PFN
        for owner, anon, file, cold_anon, cold_file in sizes:
            for flags, size, cold in (
                (_LRU | _SWAP_BACKED, anon, cold_anon),
                (_LRU, file, cold_file),
            ):
                pages, hot = size // PAGE_BYTES, (size - cold) // PAGE_BYTES
                for number in range(pages):
                    begin = number // _HUGE_PAGES * _HUGE_PAGES
                    huge = flags & _SWAP_BACKED and begin + _HUGE_PAGES <= pages
                    place = (_HEAD if number == begin else _TAIL) if huge else 0
                    self._pages[pfn + number] = _Page(
                        # As before Linux 6.3: a tail has neither flags nor an owner.
                        place if place == _TAIL else flags | place,
                        0 if place == _TAIL else owner,
                        (begin if huge else number) >= hot,
                    )
                pfn = -(-(pfn + pages) // _HUGE_PAGES) * _HUGE_PAGES


def build(sys: Directory, proc: Directory, machine: Machine) -> None:
    frames = _Frames(machine)
    zone = f"""Node 0, zone   Normal
  pages free     0
        min      11264
        spanned  {frames.end - _FIRST_PFN}
        present  {frames.end - _FIRST_PFN}
        managed  {frames.end - _FIRST_PFN}
  node_unreclaimable:  0
  start_pfn:           {_FIRST_PFN}
"""
    proc.entries["zoneinfo"] = Leaf(lambda: zone)
    proc.entries["kpageflags"] = WordsLeaf(frames.end, lambda pfn: frames.page(pfn).flags)
    proc.entries["kpagecgroup"] = WordsLeaf(frames.end, lambda pfn: frames.page(pfn).owner)
    add_directory(sys, "kernel/mm/page_idle").entries["bitmap"] = WordsLeaf(
        -(-frames.end // 64), frames.read_word, frames.write_word
    )
