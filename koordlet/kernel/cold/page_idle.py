"""Idle page tracking (Linux 4.3, CONFIG_IDLE_PAGE_TRACKING;
``Documentation/admin-guide/mm/idle_page_tracking.rst``), on a sample of the node's pages.

The bitmap has a bit for each page. Setting it marks the page idle and clears its accessed bits;
the kernel clears it when the page is used. A scan reads what it marked the time before, then marks
another sample: so a page that counts as cold was idle for a whole interval.

With MGLRU on, ``read(2)`` does not clear the bit, and page cache that is hot by it passes for cold.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.cold import kdamond
from koordlet.kernel.cold.cold import NODE, Cold, NotAvailable, Scan
from koordlet.kernel.cold.page_flags import (
    LRU,
    NO_HEAD,
    NOBODY,
    PAGES_IN_WORD,
    TAIL,
    Head,
    Tally,
    head_before,
    page_ranges,
)
from koordlet.kernel.host import Host, Words

SAMPLED_WORDS = 4096
"""Of 64 pages each, a GiB of 4 KiB pages: some 0.4 s of CPU a scan, on any machine."""
LEAST_SEEN_PAGES = 64
"""With fewer pages of a cgroup in the sample nothing is said about it."""
_MOST_BELOW = 64
"""Of one cgroup. With more below it, nothing is said about it."""
_WHOLE_WORD = (1 << PAGES_IN_WORD) - 1


class _Marked(NamedTuple):
    """A word of the bitmap. ``lead``: head of the folio that begins before it, or NOBODY."""

    word: int
    lead: int


class _Files(NamedTuple):
    bitmap: Words
    flags: Words
    owners: Words


class PageIdle:
    """Knows something from the second scan on."""

    name = "page-idle"

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        proc_root: str = "/proc",
        sys_root: str = "/sys",
        sampled_words: int = SAMPLED_WORDS,
    ) -> None:
        self._host = host
        self._cgroups = cgroups
        self._proc_root = proc_root
        self._sys_root = sys_root
        self._bitmap = f"{sys_root}/kernel/mm/page_idle/bitmap"
        self._sampled_words = sampled_words
        self._random = random.Random()
        self._marked: list[_Marked] = []
        self._scale = 1.0
        """So many words are there for each of the sample."""

    def check(self) -> str:
        if not self._host.exists(self._bitmap):
            why = f"{self._bitmap} does not exist (ENOENT)"
            raise NotAvailable(why, "use a kernel with CONFIG_IDLE_PAGE_TRACKING")
        self._require_alone()
        with ExitStack() as stack:
            files = self._open(stack)
            first = _words(self._ranges())[0].start
            files.bitmap.read(first, 1)
            files.bitmap.write(first, (0,))
            files.flags.read(first, 1)
            files.owners.read(first, 1)
        return f"read {self._bitmap} and wrote a word without a bit to it"

    def _require_alone(self) -> None:
        """A kdamond marks pages idle too, and what it has marked would pass for cold."""
        if others := kdamond.running(self._host, self._sys_root):
            why = f"{', '.join(others)}, and DAMON sets the same idle bits"
            raise NotAvailable(why, "ask whoever started it; koordlet never stops a kdamond")

    def scan(self, cgroups: frozenset[str]) -> Scan:
        """Raises NotAvailable where a kdamond has been started meanwhile."""
        self._require_alone()
        with ExitStack() as stack:
            files = self._open(stack)
            tally = Tally()
            for marked in self._marked:
                _count(files, marked, tally)
                yield
            found = self._attributed(cgroups, tally) if self._marked else {}
            self._marked = []
            spans = _words(self._ranges())
            total = sum(map(len, spans))
            sample = _sample(spans, min(self._sampled_words, total), self._random)
            self._scale = total / min(self._sampled_words, total)
            for word in sample:
                if (marked_word := _mark(files, word)) is not None:
                    self._marked.append(marked_word)
                yield
        return found

    def _open(self, stack: ExitStack) -> _Files:
        def opened(path: str, *, write: bool = False) -> Words:
            words = self._host.words(path, write=write)
            stack.callback(words.close)
            return words

        return _Files(
            opened(self._bitmap, write=True),
            opened(f"{self._proc_root}/kpageflags"),
            opened(f"{self._proc_root}/kpagecgroup"),
        )

    def _ranges(self) -> tuple[range, ...]:
        path = f"{self._proc_root}/zoneinfo"
        return page_ranges(self._host.read(path), path)

    def _attributed(self, cgroups: frozenset[str], tally: Tally) -> dict[str, Cold]:
        """Each cgroup with what its own inode and those below it own."""
        found = {NODE: self._cold(tally, tally.seen)}
        for cgroup in cgroups:
            try:
                directory = self._cgroups.directory(cgroup, Resource.MEMORY_STAT)
                below = list(self._inodes_below(directory))
                inodes = [self._host.inode(directory), *below]
            except (OSError, Unsupported):
                continue  # gone
            if len(below) > _MOST_BELOW:
                continue
            if sum(tally.seen.get(inode, 0) for inode in inodes) >= LEAST_SEEN_PAGES:
                found[cgroup] = self._cold(tally, inodes)
        return found

    def _cold(self, tally: Tally, inodes: Collection[int]) -> Cold:
        anon, file = (
            sum(pages.get(inode, 0) for inode in inodes) for pages in (tally.anon, tally.file)
        )
        unit = self._scale * PAGE_BYTES
        return Cold(anon_bytes=round(anon * unit), file_bytes=round(file * unit))

    def _inodes_below(self, directory: str) -> Iterator[int]:
        """One more than ``_MOST_BELOW`` at most."""
        waiting = [directory]
        for above in waiting:
            for name, inode in self._host.subdir_inodes(above).items():
                waiting.append(f"{above}/{name}")
                yield inode
                if len(waiting) > _MOST_BELOW + 1:
                    return


def _words(ranges: tuple[range, ...]) -> list[range]:
    """Words of the bitmap that have pages, none twice: two zones may share one."""
    found: list[range] = []
    for pages in sorted(ranges, key=lambda each: each.start):
        first = max(pages.start // PAGES_IN_WORD, found[-1].stop if found else 0)
        last = (pages.stop - 1) // PAGES_IN_WORD
        if first <= last:
            found.append(range(first, last + 1))
    return found


def _sample(spans: list[range], count: int, source: random.Random) -> Iterator[int]:
    """``count`` words, one at random of each of as many equal parts."""
    total = sum(map(len, spans))
    picked = ((number + source.random()) * total / count for number in range(count))
    passed, span = 0, iter(spans)
    current = next(span)
    for position in map(int, picked):
        while position - passed >= len(current):
            passed += len(current)
            current = next(span)
        yield current[position - passed]


def _mark(files: _Files, word: int) -> _Marked | None:
    """Set the idle bits of a word, and of the folio that reaches into it; of no other page. None
    where there is nothing that could be cold."""
    flags = files.flags.read(word * PAGES_IN_WORD, PAGES_IN_WORD)
    if not any(flag & (LRU | TAIL) for flag in flags):
        return None
    lead = NOBODY
    if flags[0] & TAIL:
        lead = head_before(files.flags, word * PAGES_IN_WORD)
    files.bitmap.write(word, (_WHOLE_WORD,))
    if lead != NOBODY:
        files.bitmap.write(lead // PAGES_IN_WORD, (1 << lead % PAGES_IN_WORD,))
    return _Marked(word, lead)


def _count(files: _Files, marked: _Marked, tally: Tally) -> None:
    idle = files.bitmap.read(marked.word, 1)
    first = marked.word * PAGES_IN_WORD
    flags = files.flags.read(first, PAGES_IN_WORD)
    owners = files.owners.read(first, PAGES_IN_WORD)
    if not idle:
        return
    tally.add(flags, owners, idle[0], _lead(files, marked.lead))


def _lead(files: _Files, pfn: int) -> Head:
    if pfn == NOBODY:
        return NO_HEAD
    (flags,), (owner,) = files.flags.read(pfn, 1), files.owners.read(pfn, 1)
    (idle,) = files.bitmap.read(pfn // PAGES_IN_WORD, 1)
    return NO_HEAD if flags & TAIL else Head(flags, owner, idle >> pfn % PAGES_IN_WORD & 1)
