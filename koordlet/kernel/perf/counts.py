"""What a group counted, and the sum over CPUs. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_HEAD = struct.Struct("=QQQ")
_PAIR = struct.Struct("=QQQQQ")


class Count(NamedTuple):
    """Of one CPU. Times in nanoseconds: while the group was wanted there, and while the PMU had
    room for it; with more groups than counters the kernel lets them take turns."""

    cycles: int
    instructions: int
    enabled_ns: int
    running_ns: int


NOTHING = Count(0, 0, 0, 0)


class Total(NamedTuple):
    """Of all CPUs, as if the PMU had always had room. ``enabled_ns`` 0: nothing ran.
    ``running_ns`` 0 with that above 0: it ran, and it was not measured."""

    cycles: float
    instructions: float
    enabled_ns: int
    running_ns: int


def pair(data: bytes) -> Count:
    """A group of two events, as ``Perf.read`` gives it. Raises ValueError."""
    if len(data) != _PAIR.size or _HEAD.unpack_from(data)[0] != 2:
        raise ValueError(f"{len(data)} bytes are no group of two events")
    _, enabled_ns, running_ns, cycles, instructions = _PAIR.unpack(data)
    return Count(cycles, instructions, enabled_ns, running_ns)


def total(counts: Iterable[Count]) -> Total:
    """Each CPU's count by enabled / running (``perf_event_open(2)``), and for the time on CPUs
    where the group never had its turn what it did on the others."""
    cycles = instructions = 0.0
    enabled_ns = running_ns = measured_ns = 0
    for count in counts:
        enabled_ns += count.enabled_ns
        running_ns += count.running_ns
        if count.running_ns:
            measured_ns += count.enabled_ns
            scale = max(1.0, count.enabled_ns / count.running_ns)
            cycles += count.cycles * scale
            instructions += count.instructions * scale
    if measured_ns:
        cycles *= enabled_ns / measured_ns
        instructions *= enabled_ns / measured_ns
    return Total(cycles, instructions, enabled_ns, running_ns)
