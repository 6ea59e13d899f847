"""Machines with CPUs for tests of NUMA."""

from __future__ import annotations

from koord_scheduler.place.numa.topology import Cpu, Topology, mask_of
from koordlet.protocol.cpuset import parse_cpulist


def topology(sockets: int, nodes: int, cores: int, threads: int) -> Topology:
    """Ids are consecutive within a core (spec/central.md 5.7)."""
    return Topology(
        Cpu(core * threads + thread, socket << 16 | core, core // cores, socket)
        for core in range(sockets * nodes * cores)
        for socket in (core // cores // nodes,)
        for thread in range(threads)
    )


def cpus(text: str) -> int:
    return mask_of(parse_cpulist(text)) if text else 0
