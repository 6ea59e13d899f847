"""Performance counters of the fake machine: a cycle counter that goes with the CPU time of a
cgroup, and instructions by a ratio that the test sets."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.faults import Faults
from koordlet_fakefs.machine import Machine

from koordlet.kernel.perf.events import CYCLES, INSTRUCTIONS, NO_CGROUP, NO_LEADER, Event

CYCLES_PER_NS = 2.5
_FIRST = 1000


@dataclass(eq=False)
class _Counter:
    event: Event
    cpu: int
    group: Cgroup | None
    members: list[_Counter] = field(default_factory=list)
    since_ns: float | None = None
    """CPU time of its cgroup when it was enabled."""


class FakePerf:
    """See ``koordlet.kernel.perf.events.Perf``. ``find``: the cgroup behind a path."""

    def __init__(self, machine: Machine, faults: Faults, find: Callable[[str], Cgroup]) -> None:
        self._machine = machine
        self._faults = faults
        self._find = find
        self._next = _FIRST
        self._open: dict[int, _Counter | Cgroup] = {}
        self.cpi: dict[str, float] = {}
        """Cycles per instruction by the cgroup's path below its mount; 1 for those not named."""
        self.share: dict[str, float] = {}
        """Part of the time in which the PMU has room for a cgroup; 1 for those not named."""
        self.limit = 1 << 20
        """Descriptors that this process may have of it."""

    @property
    def held(self) -> int:
        """Descriptors that are open."""
        return len(self._open)

    def directory(self, path: str) -> int:
        return self._keep(self._find(path))

    def open(
        self, event: Event, cpu: int, *, cgroup: int = NO_CGROUP, leader: int = NO_LEADER
    ) -> int:
        what = f"perf_event_open({event.name}, CPU {cpu})"
        self._faults.check("perf", what)
        counted = {"none": (), "cycles": (CYCLES,), "full": (CYCLES, INSTRUCTIONS)}
        topology = self._machine.options.topology
        if event.type == CYCLES.type and event not in counted[self._machine.options.pmu]:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), what)
        if cpu not in topology.online:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), what)
        group = self._open.get(cgroup)
        assert cgroup == NO_CGROUP or isinstance(group, Cgroup), "cgroup is no open directory"
        counter = _Counter(event, cpu, group if isinstance(group, Cgroup) else None)
        descriptor = self._keep(counter)
        if leader != NO_LEADER:
            self._counter(leader).members.append(counter)
        return descriptor

    def enable(self, leader: int) -> None:
        counter = self._counter(leader)
        counter.since_ns = self._ran_ns(counter)

    def read(self, leader: int) -> bytes:
        counter = self._counter(leader)
        since_ns = self._ran_ns(counter) if counter.since_ns is None else counter.since_ns
        ran_ns = self._ran_ns(counter) - since_ns
        path = counter.group.path if counter.group is not None else ""
        running_ns = ran_ns * self.share.get(path, 1.0)
        events = (counter, *counter.members)
        counts = [int(self._count(each.event, running_ns, path)) for each in events]
        numbers = (len(events), int(ran_ns), int(running_ns), *counts)
        return struct.pack(f"={len(numbers)}Q", *numbers)

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def _count(self, event: Event, running_ns: float, path: str) -> float:
        if event == CYCLES:
            return running_ns * CYCLES_PER_NS
        if event == INSTRUCTIONS:
            return running_ns * CYCLES_PER_NS / self.cpi.get(path, 1.0)
        return running_ns

    def _ran_ns(self, counter: _Counter) -> float:
        """As the cgroup of the same path is charged in the hierarchy of cpuacct. What runs outside
        of cgroups is not modelled."""
        group = counter.group
        accounting = self._machine.hierarchy_of("cpuacct")
        if group is not None and group.account is None and accounting is not None:
            path = group.path
            group = next((each for each in accounting.root.subtree() if each.path == path), None)
        account = group.account if group is not None else None
        return account.cpus[counter.cpu] if account is not None else 0.0

    def _counter(self, descriptor: int) -> _Counter:
        counter = self._open[descriptor]
        assert isinstance(counter, _Counter)
        return counter

    def _keep(self, what: _Counter | Cgroup) -> int:
        if len(self._open) >= self.limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "perf_event_open")
        self._next += 1
        self._open[self._next] = what
        return self._next
