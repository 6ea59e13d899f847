"""Waiting for a CPU, by watched cgroup and by who ran meanwhile (``programs/run_queue.bpf.c``)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.syscalls import delete, entries, entry, set_entry, sums

PROGRAM = "run_queue"
SLOTS = 27
"""Slot 0: below 1,024 ns; slot k: from 2^(k-1) times that on."""
MOST_WATCHED = 1024
_MOST_ROWS = 16384
_BUCKETS, _PER_BUCKET, _RECENT = 1024, 4, 8

IDLE = 0
"""Culprit: nobody ran, the CPU was slow to wake up."""
THROTTLED = 2**64 - 1
"""Culprit: the victim's own quota was used up."""
OLDER = 2**64 - 2
"""Culprit: not known, it is longer ago than a CPU remembers."""

KERNEL = 2**64 - 3
"""Culprit: the kernel's own threads; of a disk what they write."""


class Delays(NamedTuple):
    """Waits of one cgroup since it is watched. ``slots``: how many of each length."""

    waits: int
    total_ns: int
    longest_ns: int
    slots: tuple[int, ...]


class Reading(NamedTuple):
    """Counters since a cgroup is watched. ``waits_ns``: by victim, then by culprit, ids of cgroups
    both; a cell that has not grown for long may begin anew. ``lost``: waits that found no room in a
    map."""

    delays: Mapping[int, Delays]
    waits_ns: Mapping[int, Mapping[int, int]]
    lost: int


class RunQueue(Protocol):
    """Blocks: for a worker thread."""

    @property
    def has_matrix(self) -> bool:
        """Whether it is measured who makes whom wait; else there are ``delays`` alone."""
        ...

    def watch(self, cgroups: Collection[int]) -> int:
        """From now on watch these ids and no others, the first ones where not all have room; how
        many have none."""
        ...

    def read(self, pause: Callable[[], None]) -> Reading: ...

    def others_ns(self) -> int:
        """Waits of all victims because of other cgroups. Takes microseconds: for any thread."""
        ...

    @property
    def meter(self) -> Meter: ...

    @property
    def memory_bytes(self) -> int:
        """Of its maps in the kernel."""
        ...

    def close(self) -> None: ...


class BpfRunQueue:
    """Raises OSError where the kernel or the machine lacks something."""

    def __init__(self, *, by_cpu_controller: bool, with_matrix: bool = True) -> None:
        """``by_cpu_controller``: cgroups have a controller ``cpu`` of their own, in v1 or v2."""
        self._object: BpfObject = load(
            PROGRAM, options=struct.pack("=II", by_cpu_controller, with_matrix)
        )
        self.has_matrix = with_matrix
        self.meter = CostMeter(self._object.run_times)
        self._places: dict[int, int] = {}
        """Of watched cgroups, in ``delays``."""
        self._before: dict[int, dict[int, int]] = {}
        self._last: dict[int, Delays] = {}
        self._watched = self._object.variables(2 * _BUCKETS * _PER_BUCKET)
        self._waits = self._object.map("waits", 2, 2, per_cpu=True)
        self._delays = self._object.map("delays", 1, 3 + SLOTS, per_cpu=True)
        self._recents = self._object.map("recents", 1, 4 * _RECENT, per_cpu=True)
        self._totals = self._object.map("totals", 1, 2, per_cpu=True)
        self.memory_bytes = self._object.memory_bytes()
        try:
            self._object.attach()
        except OSError:
            self._object.close()
            raise

    def watch(self, cgroups: Collection[int]) -> int:
        table, left = _table(self._places, cgroups)
        wanted = {cgroup: place for cgroup, place in table if cgroup}
        gone = self._places.keys() - wanted.keys()
        # The programs look at no other cgroup from here on.
        words = array("Q", (word for pair in table for word in pair))
        set_entry(self._watched, 0, words.tobytes())
        for cgroup in gone:
            self._last.pop(cgroup, None)
            set_entry(self._delays, self._places[cgroup], bytes(8 * self._delays.stride))
        self._places = wanted
        return left

    def read(self, pause: Callable[[], None]) -> Reading:
        delays: dict[int, Delays] = {}
        for cgroup, place in self._places.items():
            pause()
            delays[cgroup] = sum_delays(entry(self._delays, place), self._last.get(cgroup))
        self._last = delays
        recent = self._recent()
        waits = {victim: dict(row) for victim, row in recent.items()}
        stride, words = self._waits.stride, self._waits.value_words
        unwatched: list[tuple[int, int]] = []
        for found in entries(self._waits):
            for number in range(len(found.keys) // 2):
                pause()
                victim, culprit = found.keys[2 * number], found.keys[2 * number + 1]
                if victim not in self._places:  # what was still on its way when it was left out
                    unwatched.append((victim, culprit))
                    continue
                row = found.values[number * stride : (number + 1) * stride]
                into = waits.setdefault(victim, {})
                into[culprit] = into.get(culprit, 0) + sum(row[::words])
        for pair in unwatched:
            delete(self._waits, pair)
        # What a program moves from one to the other between the two readings counts twice for once:
        # the next reading must not look like a step back.
        for victim, before in self._before.items():
            cells = waits.get(victim, {})
            for culprit in before.keys() & cells.keys():
                cells[culprit] = max(cells[culprit], before[culprit])
        self._make_room(waits, recent)
        self._before = waits
        return Reading(delays, waits, sums(self._totals, 0)[0])

    def _make_room(
        self, waits: dict[int, dict[int, int]], recent: Mapping[int, Mapping[int, int]]
    ) -> None:
        """Rows of culprits that are long gone would fill the map: those that did not grow go, here
        and there, so that they count from zero where they come again. Not those of which a CPU has
        a part, which would count again."""
        if sum(map(len, waits.values())) < 3 * _MOST_ROWS // 4:
            return
        for victim, row in waits.items():
            before, kept = self._before.get(victim, {}), recent.get(victim, {})
            at_rest = [n for n, ns in row.items() if before.get(n) == ns and n not in kept]
            for culprit in at_rest:
                delete(self._waits, (victim, culprit))
                del row[culprit]

    def _recent(self) -> dict[int, dict[int, int]]:
        found: dict[int, dict[int, int]] = {}
        values = entry(self._recents, 0)
        for first in range(0, len(values), 4):
            victim, culprit, ns, count = values[first : first + 4]
            if count and victim in self._places:
                into = found.setdefault(victim, {})
                into[culprit] = into.get(culprit, 0) + ns
        return found

    def others_ns(self) -> int:
        return sums(self._totals, 0)[1]

    def close(self) -> None:
        self.meter.close()
        self._object.close()


def _table(
    before: Mapping[int, int], cgroups: Collection[int]
) -> tuple[list[tuple[int, int]], int]:
    """The table of watched cgroups as the programs take it, pairs of id and place, and how many
    found no room, the last ones. A cgroup keeps the place that it had ``before``."""
    wanted = list(islice(cgroups, MOST_WATCHED))
    kept = {cgroup: before[cgroup] for cgroup in wanted if cgroup in before}
    free = iter(sorted(set(range(MOST_WATCHED)) - set(kept.values())))
    table = [(0, 0)] * (_BUCKETS * _PER_BUCKET)
    left = len(cgroups) - len(wanted)
    for cgroup in wanted:
        first = cgroup % _BUCKETS * _PER_BUCKET
        room = next((n for n in range(first, first + _PER_BUCKET) if not table[n][0]), None)
        if room is None:
            left += 1
        else:
            table[room] = cgroup, kept[cgroup] if cgroup in kept else next(free)
    return table, left


def sum_delays(values: array[int], last: Delays | None) -> Delays:
    """The values of all CPUs in one; ``last`` itself where nobody waited since."""
    words = 3 + SLOTS
    # Most cgroups are idle: the same number of waits means the same waits.
    if last is not None and sum(values[::words]) == last.waits:
        return last
    return Delays(
        sum(values[::words]),
        sum(values[1::words]),
        max(values[2::words]),
        tuple(sum(values[k::words]) for k in range(3, words)),
    )
