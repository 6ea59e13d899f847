"""Block requests, stalls for memory and interrupts as a test wants them to have been."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from koordlet_fakefs.bpf.run_queue import FakeMeter

from koordlet.kernel.bpf import block, stalls
from koordlet.kernel.bpf.irq import Interrupted
from koordlet.kernel.bpf.run_queue import SLOTS
from koordlet.kernel.bpf.stalls import Stall

_NOBODY = block.Counts(0, 0, (0,) * SLOTS)


class FakeBlockIo:
    """See ``koordlet.kernel.bpf.block.BlockIo``. Set ``FakeHost.make_block_io``."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.memory_bytes = 3 << 20
        self.watched: set[int] = set()
        self.room = 4096
        self.stages: dict[int, block.Stages] = {}
        self.waits_ns: dict[int, dict[int, int]] = {}
        self.waits_for_others_ns = 0
        self.reads = 0
        self.closed = False
        self.error: OSError | None = None

    def others_ns(self) -> int:
        return self.waits_for_others_ns

    def watch(self, cgroups: Collection[int]) -> int:
        self.watched = set(sorted(cgroups)[: self.room])
        return len(cgroups) - len(self.watched)

    def read(self, pause: Callable[[], None]) -> block.Reading:
        self.reads += 1
        if self.error is not None:
            raise self.error
        waits = {victim: dict(row) for victim, row in self.waits_ns.items()}
        return block.Reading(dict(self.stages), waits, 0)

    def close(self) -> None:
        self.closed = True

    def wait(self, victim: int, culprit: int, ns: int) -> None:
        row = self.waits_ns.setdefault(victim, {})
        row[culprit] = row.get(culprit, 0) + ns

    def serve(self, cgroup: int, *, queue_slot: int, device_slot: int, requests: int = 1) -> None:
        """Requests whose stages are as long as these slots of a distribution say."""
        queue, device = self.stages.get(cgroup, block.Stages(_NOBODY, _NOBODY))
        self.stages[cgroup] = block.Stages(
            _more(queue, queue_slot, requests), _more(device, device_slot, requests)
        )


def _more(counts: block.Counts, slot: int, requests: int) -> block.Counts:
    slots = list(counts.slots)
    slots[slot] += requests
    return block.Counts(counts.requests + requests, counts.total_ns, tuple(slots))


class FakeStalls:
    """See ``koordlet.kernel.bpf.stalls.Stalls``. Set ``FakeHost.make_stalls``."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.memory_bytes = 3 << 20
        self.memory: dict[int, dict[int, Stall]] = {}
        self.retransmits: dict[int, int] = {}
        self.waits_for_others_ns = 0
        self.reads = 0
        self.closed = False

    def others_ns(self) -> int:
        return self.waits_for_others_ns

    def read(self, pause: Callable[[], None]) -> stalls.Reading:
        self.reads += 1
        memory = {scope: dict(row) for scope, row in self.memory.items()}
        return stalls.Reading(memory, dict(self.retransmits))

    def close(self) -> None:
        self.closed = True

    def stall(self, scope: int, cgroup: int, ns: int, pages: int) -> None:
        """Once more."""
        row = self.memory.setdefault(scope, {})
        before = row.get(cgroup, Stall(0, 0, 0))
        row[cgroup] = Stall(before.times + 1, before.ns + ns, before.pages + pages)


class FakeInterrupts:
    """See ``koordlet.kernel.bpf.irq.Interrupts``. Set ``FakeHost.make_interrupts``."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.memory_bytes = 3 << 20
        self.watched: set[int] = set()
        self.counters: dict[int, Interrupted] = {}
        self.attached = False
        self.windows = 0
        self.closed = False

    def watch(self, cgroups: Collection[int]) -> int:
        self.watched = set(cgroups)
        return 0

    def attach(self) -> None:
        self.attached = True
        self.windows += 1

    def detach(self) -> None:
        self.attached = False

    def read(self, pause: Callable[[], None]) -> Mapping[int, Interrupted]:
        return dict(self.counters)

    def close(self) -> None:
        self.closed = True
