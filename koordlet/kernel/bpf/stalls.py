"""Reclaiming memory before getting some, and what TCP sends again, by cgroup
(``programs/stalls.bpf.c``)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.syscalls import entries, sums

PROGRAM = "stalls"
MACHINE = 0
"""Scope: the machine is short of memory, or of room in one piece for a large page."""


class Stall(NamedTuple):
    """Of all tasks of a cgroup together: how often and how long they reclaimed or compacted memory
    before they got some, and how many pages they reclaimed."""

    times: int
    ns: int
    pages: int


class Reading(NamedTuple):
    """Counters of cgroups that have stalled, by scope and then by cgroup; one that has not for long
    may begin anew. A scope is what is short of memory: the machine, or the id of a cgroup at its
    limit. ``retransmits``: TCP segments, by cgroup of the unified hierarchy."""

    memory: Mapping[int, Mapping[int, Stall]]
    retransmits: Mapping[int, int]


class Stalls(Protocol):
    """Blocks: for a worker thread."""

    def read(self, pause: Callable[[], None]) -> Reading: ...

    def others_ns(self) -> int:
        """Stalls for memory of all cgroups, but those at their own limit; takes microseconds, for
        any thread."""
        ...

    @property
    def meter(self) -> Meter: ...

    @property
    def memory_bytes(self) -> int:
        """Of its maps in the kernel."""
        ...

    def close(self) -> None: ...


class BpfStalls:
    """Raises OSError where the kernel or the machine lacks something."""

    def __init__(self, *, by_memory_controller: bool) -> None:
        """``by_memory_controller``: cgroups are those of the hierarchy of the v1 controller
        ``memory``, else of the unified one."""
        self._object: BpfObject = load(PROGRAM, options=struct.pack("=I", by_memory_controller))
        self.meter = CostMeter(self._object.run_times)
        self._stalls = self._object.map("stalls", 2, 3)
        self._retransmits = self._object.map("retransmits", 1, 1)
        self._others = self._object.map("others_ns", 1, 1, per_cpu=True)
        self.memory_bytes = self._object.memory_bytes()
        try:
            self._object.attach()
        except OSError:
            self._object.close()
            raise

    def read(self, pause: Callable[[], None]) -> Reading:
        memory: dict[int, dict[int, Stall]] = {}
        for found in entries(self._stalls):
            for number in range(len(found.keys) // 2):
                pause()
                scope, cgroup = found.keys[2 * number], found.keys[2 * number + 1]
                memory.setdefault(scope, {})[cgroup] = Stall(*found.values[3 * number :][:3])
        retransmits: dict[int, int] = {}
        for found in entries(self._retransmits):
            pause()
            retransmits |= dict(zip(found.keys, found.values, strict=True))
        return Reading(memory, retransmits)

    def others_ns(self) -> int:
        return sums(self._others, 0)[0]

    def close(self) -> None:
        self.meter.close()
        self._object.close()
