"""Cycles and instructions by cgroup, from one pair of counters on each CPU
(``programs/cpi.bpf.c``): 192 descriptors on 96 CPUs, whatever the number of cgroups."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.syscalls import (
    clear_entry,
    delete,
    entries,
    set_entry,
    update,
)
from koordlet.kernel.perf.counts import Count
from koordlet.kernel.perf.events import PAIR, Event, Perf, open_pair
from koordlet.protocol.cpuset import parse_cpulist

PROGRAM = "cpi"
MOST_CGROUPS = 4096
_SETTLE = "settle"
_SUM_WORDS = 4
_CPU_WORDS = 1 + 2 * 3


class CpiCounters(Protocol):
    """Windows, one after the other. Blocks: for a worker thread. All raise OSError. ``room``: for
    so many ids."""

    room: int

    def begin(self, cgroups: Sequence[int], cpus: Sequence[int], pause: Callable[[], None]) -> None:
        """Count these ids from now on, ``room`` of them at most."""
        ...

    def end(self, pause: Callable[[], None]) -> Mapping[int, Sequence[Count]]:
        """What each id ran since ``begin``, by CPU."""
        ...

    @property
    def meter(self) -> Meter: ...

    def close(self) -> None: ...


class BpfCpiCounters:
    """Between two windows nothing is attached and no counter is open; the programs stay loaded."""

    def __init__(
        self, perf: Perf, *, by_cpu_controller: bool, events: tuple[Event, Event] = PAIR
    ) -> None:
        """Raises OSError where the kernel or the machine lacks something. ``by_cpu_controller``:
        ids are from the v1 hierarchy of ``cpu``, else from the unified one. ``events``: instead of
        cycles and instructions."""
        slots = _slots()
        self.room = MOST_CGROUPS
        self._perf = perf
        self._events = events
        self._object: BpfObject = load(
            PROGRAM,
            options=struct.pack("=II", by_cpu_controller, 0),
            entries={"cycles": slots, "instructions": slots, "sums": self.room},
            by_hand=frozenset({_SETTLE}),
        )
        self.meter = CostMeter(self._object.run_times)
        self._pairs = (self._object.map("cycles", 1, 1), self._object.map("instructions", 1, 1))
        self._cpu_map = self._object.map("cpus", 1, _CPU_WORDS, per_cpu=True)
        self._sums = self._object.map("sums", 1, _SUM_WORDS, per_cpu=True)
        self._open: dict[int, tuple[int, int]] = {}
        self._rows: tuple[int, ...] = ()
        try:
            self._object.attach()
            self._object.run(_SETTLE, min(os.sched_getaffinity(0)))
        except OSError:
            self._object.close()
            raise
        self._object.detach()

    def begin(self, cgroups: Sequence[int], cpus: Sequence[int], pause: Callable[[], None]) -> None:
        self._stop()
        nothing = bytes(8 * self._sums.stride)
        self._rows = tuple(cgroups[: self.room])
        for cgroup in self._rows:
            pause()
            update(self._sums, (cgroup,), nothing)
        set_entry(self._cpu_map, 0, bytes(8 * self._cpu_map.stride))
        for cpu in cpus:
            pause()
            with _unless_offline():
                self._count_on(cpu)
        self._object.attach()
        self._settle(pause)

    def end(self, pause: Callable[[], None]) -> Mapping[int, Sequence[Count]]:
        self._settle(pause)
        self._object.detach()
        found: dict[int, list[Count]] = {}
        stride = self._sums.stride
        for batch in entries(self._sums):
            for number, cgroup in enumerate(batch.keys):
                pause()
                values = batch.values[number * stride : (number + 1) * stride]
                found[cgroup] = [
                    Count(*values[first : first + _SUM_WORDS])
                    for first in range(0, stride, _SUM_WORDS)
                    if values[first + 2]
                ]
        self._stop()
        return found

    def close(self) -> None:
        self.meter.close()
        self._stop()
        self._object.close()

    def _count_on(self, cpu: int) -> None:
        pair = self._open[cpu] = open_pair(self._perf, cpu, events=self._events)
        for map_, descriptor in zip(self._pairs, pair, strict=True):
            set_entry(map_, cpu, struct.pack("=I", descriptor))
        self._perf.enable(pair[0])

    def _settle(self, pause: Callable[[], None]) -> None:
        for cpu in self._open:
            pause()
            with _unless_offline():
                self._object.run(_SETTLE, cpu)

    def _stop(self) -> None:
        self._object.detach()
        for cpu, pair in self._open.items():
            for map_, descriptor in zip(self._pairs, pair, strict=True):
                clear_entry(map_, cpu)  # it would keep the counter open
                self._perf.close(descriptor)
        self._open = {}
        for cgroup in self._rows:
            delete(self._sums, (cgroup,))
        self._rows = ()


def _slots(path: str = "/sys/devices/system/cpu/possible") -> int:
    """Of an array that the program finds its counter in by the id of its CPU. Ids may have gaps."""
    return max(parse_cpulist(Path(path).read_text())) + 1


@contextlib.contextmanager
def _unless_offline() -> Iterator[None]:
    """A CPU that has gone since the list was read."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.ENXIO):
            raise
