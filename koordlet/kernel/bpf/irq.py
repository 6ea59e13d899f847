"""Interrupts, by the watched cgroup whose task they interrupted (``programs/irq.bpf.c``)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.counters import Counters
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.syscalls import set_entry

PROGRAM = "irq"


class Interrupted(NamedTuple):
    """Counters since a cgroup is watched, of all CPUs."""

    softirq_ns: int
    hardirq_ns: int


class Interrupts(Protocol):
    """Counts between ``attach`` and ``detach``. Blocks: for a worker thread."""

    def watch(self, cgroups: Collection[int]) -> int:
        """From now on watch these ids and no others, the first ones where not all have room; how
        many have none."""
        ...

    def attach(self) -> None: ...

    def detach(self) -> None: ...

    def read(self, pause: Callable[[], None]) -> Mapping[int, Interrupted]: ...

    @property
    def meter(self) -> Meter: ...

    @property
    def memory_bytes(self) -> int:
        """Of its maps in the kernel."""
        ...

    def close(self) -> None: ...


class BpfInterrupts:
    """Raises OSError where the kernel or the machine lacks something."""

    def __init__(self, *, by_cpu_controller: bool) -> None:
        """``by_cpu_controller``: the controller ``cpu`` has a v1 hierarchy; else ids are those of
        the unified one."""
        self._object: BpfObject = load(PROGRAM, options=struct.pack("=I", by_cpu_controller))
        self.meter = CostMeter(self._object.run_times)
        self.memory_bytes = self._object.memory_bytes()
        self._begun = self._object.map("begun", 1, 2, per_cpu=True)
        self._groups = Counters(self._object.map("groups", 1, 2, per_cpu=True))

    def watch(self, cgroups: Collection[int]) -> int:
        return self._groups.watch(cgroups)

    def attach(self) -> None:
        """Raises OSError."""
        # What had begun when the programs were detached has no end.
        set_entry(self._begun, 0, bytes(8 * self._begun.stride))
        self._object.attach()

    def detach(self) -> None:
        self._object.detach()

    def read(self, pause: Callable[[], None]) -> Mapping[int, Interrupted]:
        return {cgroup: Interrupted(*words) for cgroup, words in self._groups.read(pause).items()}

    def close(self) -> None:
        self.meter.close()
        self._object.close()
