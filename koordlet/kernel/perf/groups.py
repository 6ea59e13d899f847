"""Cycles and instructions of cgroups by one group of counters for each cgroup and CPU.

The kernel opens a descriptor in 17 us and closes it in 8 us, and a switch between cgroups costs
1.2 us more while 1,200 counters are open on a CPU. So there is a limit, and all are closed after
each window.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import chain

from koordlet.kernel.perf.counts import NOTHING, Count, pair
from koordlet.kernel.perf.events import PAIR, Event, Perf, open_pair

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


def allowed(limit: int) -> int:
    """``limit``, and never more than a quarter of RLIMIT_NOFILE: the daemon has other files."""
    return min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def most(limit: int, cpus: int) -> int:
    """How many cgroups ``limit`` descriptors are enough for."""
    return limit // (len(PAIR) * max(cpus, 1) + 1)


class CgroupCounters:
    """Windows, one after the other, in which nothing else is open. Blocks: for a worker thread."""

    def __init__(self, perf: Perf, events: tuple[Event, Event] = PAIR) -> None:
        """``events``: instead of cycles and instructions."""
        self._perf = perf
        self._events = events
        self._leaders: dict[str, list[int]] = {}
        self._stack = ExitStack()

    def begin(
        self, directories: Sequence[str], cpus: Sequence[int], pause: Callable[[], None]
    ) -> dict[str, OSError]:
        """Count these cgroups from now on; why one is not counted. Takes 32 us for each of them
        and each CPU. A CPU that has gone offline counts nothing."""
        self.close()
        refused: dict[str, OSError] = {}
        exhausted: OSError | None = None
        for path in directories:
            if exhausted is not None:
                refused[path] = exhausted
                continue
            with ExitStack() as mine:
                try:
                    leaders = self._open(path, cpus, mine, pause)
                except OSError as error:
                    refused[path] = error
                    exhausted = error if error.errno in _NO_DESCRIPTOR else None
                    continue
                self._leaders[path] = leaders
                self._stack.push(mine.pop_all())
        for leader in chain.from_iterable(self._leaders.values()):
            pause()
            with suppress(OSError):  # its CPU has gone, and what it reads is nothing
                self._perf.enable(leader)
        return refused

    def end(self, pause: Callable[[], None]) -> dict[str, list[Count]]:
        """What each cgroup ran since ``begin``, by CPU."""
        found: dict[str, list[Count]] = {}
        for path, leaders in self._leaders.items():
            pause()
            found[path] = [self._read(leader) for leader in leaders]
        self.close()
        return found

    def close(self) -> None:
        self._leaders = {}
        self._stack.close()

    def _open(
        self, path: str, cpus: Sequence[int], stack: ExitStack, pause: Callable[[], None]
    ) -> list[int]:
        """Leaders, at least one. What it opens is closed with ``stack``."""
        leaders = []
        gone: OSError | None = None
        directory = self._perf.directory(path)
        stack.callback(self._perf.close, directory)
        for cpu in cpus:
            pause()
            try:
                leader, member = open_pair(self._perf, cpu, directory, self._events)
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
                gone = error
                continue
            stack.callback(self._perf.close, leader)
            stack.callback(self._perf.close, member)
            leaders.append(leader)
        if gone is not None and not leaders:
            raise gone
        return leaders

    def _read(self, leader: int) -> Count:
        """Without data the counter is out of order, as after its CPU has gone."""
        data = self._perf.read(leader)
        return pair(data) if data else NOTHING
