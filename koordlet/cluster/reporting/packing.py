"""Which CPUs are taken where only their number is given: packed, as kubelet's static policy packs
them (docs/reference/metrics.md 6.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from koordlet.decision.snapshot import Cpu, Topology
from koordlet.protocol.cpuset import CPUSet


def packed(topology: Topology, count: int) -> CPUSet | None:
    """``count`` of the CPUs: whole sockets, then whole NUMA nodes, whole cores, threads. Of what is
    no longer whole, the part with the fewest free CPUs is used up first; ties go by id. None where
    there are not so many."""
    if count > len(topology.cpus):
        return None
    free, taken = set(topology.cpus), set[Cpu]()
    for part in (_socket, _numa, _core):
        for group in _whole(topology.cpus, free, part):
            if len(group) > count - len(taken):
                continue
            taken |= group
            free -= group
    ordered = sorted(free, key=_order(free))
    taken.update(ordered[: max(count - len(taken), 0)])
    return frozenset(cpu.id for cpu in taken)


def _socket(cpu: Cpu) -> Hashable:
    return cpu.socket


def _numa(cpu: Cpu) -> Hashable:
    return cpu.numa


def _core(cpu: Cpu) -> Hashable:
    return cpu.core


def _whole(
    cpus: Iterable[Cpu], free: set[Cpu], part: Callable[[Cpu], Hashable]
) -> list[frozenset[Cpu]]:
    """Parts of which nothing is taken, in the order in which they are taken."""
    groups = defaultdict[Hashable, set[Cpu]](set)
    for cpu in cpus:
        groups[part(cpu)].add(cpu)
    order = _order(free)
    found = (frozenset(group) for group in groups.values() if group <= free)
    return sorted(found, key=lambda group: min(map(order, group)))


def _order(free: Iterable[Cpu]) -> Callable[[Cpu], tuple[int, ...]]:
    """Fewest free CPUs first, of the socket, then of the NUMA node and of the core."""
    counts = defaultdict[tuple[str, Hashable], int](int)
    for cpu in free:
        counts["socket", cpu.socket] += 1
        counts["numa", cpu.numa] += 1
        counts["core", cpu.core] += 1

    def order(cpu: Cpu) -> tuple[int, ...]:
        return (
            counts["socket", cpu.socket],
            counts["numa", cpu.numa],
            counts["core", cpu.core],
            cpu.id,
        )

    return order
