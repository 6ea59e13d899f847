"""Waits for a CPU as a test wants them to have been."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.run_queue import Delays, Reading


class FakeMeter:
    """See ``koordlet.kernel.bpf.cost.Meter``."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.measuring = False
        self.unknown = ""

    def begin(self, now_s: float) -> None:
        self.measuring = True

    def end(self, now_s: float) -> Mapping[str, Cost]:
        self.measuring = False
        return self.costs


class FakeRunQueue:
    """See ``koordlet.kernel.bpf.run_queue.RunQueue``. Set ``FakeHost.make_run_queue``."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.memory_bytes = 3 << 20
        self.has_matrix = True
        self.waits_for_others_ns = 0
        self.watched: set[int] = set()
        self.waits_ns: dict[int, dict[int, int]] = {}
        self.slots: dict[int, list[int]] = {}
        self.reads = 0
        self.lost = 0
        self.closed = False
        self.error: OSError | None = None

    def watch(self, cgroups: Collection[int]) -> int:
        self.watched = set(cgroups)
        return 0

    def read(self, pause: Callable[[], None]) -> Reading:
        self.reads += 1
        if self.error is not None:
            raise self.error
        delays = {
            cgroup: Delays(sum(slots), 0, 0, tuple(slots)) for cgroup, slots in self.slots.items()
        }
        return Reading(delays, {v: dict(row) for v, row in self.waits_ns.items()}, self.lost)

    def others_ns(self) -> int:
        return self.waits_for_others_ns

    def close(self) -> None:
        self.closed = True

    def wait(self, victim: int, culprit: int, ns: int) -> None:
        row = self.waits_ns.setdefault(victim, {})
        row[culprit] = row.get(culprit, 0) + ns
