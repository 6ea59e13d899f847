"""Counters of cgroups by eBPF, as a test wants them to have counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from koordlet_fakefs.bpf.run_queue import FakeMeter

from koordlet.kernel.perf.counts import NOTHING, Count


class FakeCpiCounters:
    """See ``koordlet.kernel.bpf.cpi.CpiCounters``. Set ``FakeHost.make_cpi_counters``."""

    def __init__(self, room: int = 4096) -> None:
        """``room``: for so many cgroups."""
        self.meter = FakeMeter()
        self.counts: dict[int, list[Count]] = {}
        """What each cgroup will have run at the end of a window."""
        self.watched: tuple[int, ...] = ()
        self.cpus: tuple[int, ...] = ()
        self.counting = False
        self.windows = 0
        self.closed = False
        self.error: OSError | None = None
        self.room = room

    def begin(self, cgroups: Sequence[int], cpus: Sequence[int], pause: Callable[[], None]) -> None:
        if self.error is not None:
            raise self.error
        assert len(cgroups) <= self.room
        self.watched, self.cpus = tuple(cgroups), tuple(cpus)
        self.counting = True

    def end(self, pause: Callable[[], None]) -> Mapping[int, Sequence[Count]]:
        assert self.counting
        self.counting = False
        self.windows += 1
        return {cgroup: self.counts.get(cgroup, [NOTHING]) for cgroup in self.watched}

    def close(self) -> None:
        self.counting = False
        self.closed = True
