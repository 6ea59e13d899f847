"""Waiting for a CPU, by watched cgroup and by who ran meanwhile (``programs/run_queue.bpf.c``)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.syscalls import delete, entries, lookup_first, update

PROGRAM = "run_queue"
SLOTS = 27
"""Slot 0: below 1,024 ns; slot k: from 2^(k-1) times that on."""
MOST_WATCHED = 4096

IDLE = 0
"""Culprit: nobody ran, the CPU was slow to wake up."""
THROTTLED = 2**64 - 1
"""Culprit: the victim's own quota was used up."""
OLDER = 2**64 - 2
"""Culprit: not known, it is longer ago than a CPU remembers."""


class Delays(NamedTuple):
    """Waits of one cgroup since it is watched. ``slots``: how many of each length."""

    waits: int
    total_ns: int
    longest_ns: int
    slots: tuple[int, ...]


class Reading(NamedTuple):
    """All counters only grow. ``waits_ns``: by victim, then by culprit, ids of cgroups both.
    ``lost``: waits that found no room in a map."""

    delays: Mapping[int, Delays]
    waits_ns: Mapping[int, Mapping[int, int]]
    lost: int


class RunQueue(Protocol):
    """Blocks: for a worker thread."""

    def watch(self, cgroups: Collection[int]) -> int:
        """From now on watch these ids and no others; how many found no room."""
        ...

    def read(self, pause: Callable[[], None]) -> Reading: ...

    def others_ns(self) -> int:
        """Waits of all victims because of other cgroups. Takes microseconds: for any thread."""
        ...

    @property
    def meter(self) -> Meter: ...

    def close(self) -> None: ...


class BpfRunQueue:
    """Raises OSError where the kernel or the machine lacks something."""

    def __init__(self, *, by_cpu_controller: bool, with_matrix: bool = True) -> None:
        """``by_cpu_controller``: cgroups have a controller ``cpu`` of their own, in v1 or v2."""
        self._object: BpfObject = load(
            PROGRAM, options=struct.pack("=II", by_cpu_controller, with_matrix)
        )
        self.meter = CostMeter(self._object.run_times)
        self._watched: set[int] = set()
        self._watch_map = self._object.map("watched", 1, 1)
        self._waits = self._object.map("waits", 2, 2, per_cpu=True)
        self._delays = self._object.map("delays", 1, 3 + SLOTS, per_cpu=True)
        self._totals = self._object.map("totals", 1, 2, per_cpu=True)
        try:
            self._object.attach()
        except OSError:
            self._object.close()
            raise

    def watch(self, cgroups: Collection[int]) -> int:
        wanted = set(sorted(cgroups)[:MOST_WATCHED])
        gone = self._watched - wanted
        for cgroup in gone:
            delete(self._watch_map, (cgroup,))
            delete(self._delays, (cgroup,))
        if gone:
            for found in entries(self._waits):
                for place in range(0, len(found.keys), 2):
                    if found.keys[place] in gone:
                        delete(self._waits, (found.keys[place], found.keys[place + 1]))
        for cgroup in wanted - self._watched:
            update(self._watch_map, (cgroup,), struct.pack("=I", 1))
        self._watched = wanted
        return len(cgroups) - len(wanted)

    def read(self, pause: Callable[[], None]) -> Reading:
        delays: dict[int, Delays] = {}
        stride, words = self._delays.stride, self._delays.value_words
        for found in entries(self._delays):
            for number, cgroup in enumerate(found.keys):
                pause()
                delays[cgroup] = _delays(found.values[number * stride : (number + 1) * stride])
        waits: dict[int, dict[int, int]] = {}
        stride, words = self._waits.stride, self._waits.value_words
        for found in entries(self._waits):
            for number in range(len(found.keys) // 2):
                pause()
                victim, culprit = found.keys[2 * number], found.keys[2 * number + 1]
                row = found.values[number * stride : (number + 1) * stride]
                waits.setdefault(victim, {})[culprit] = sum(row[::words])
        return Reading(delays, waits, lookup_first(self._totals)[0])

    def others_ns(self) -> int:
        return lookup_first(self._totals)[1]

    def close(self) -> None:
        self.meter.close()
        self._object.close()


def _delays(values: array[int]) -> Delays:
    """The values of all CPUs in one."""
    words = 3 + SLOTS
    return Delays(
        sum(values[::words]),
        sum(values[1::words]),
        max(values[2::words]),
        tuple(sum(values[k::words]) for k in range(3, words)),
    )
