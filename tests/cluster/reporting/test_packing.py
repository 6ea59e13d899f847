"""Packed CPUs, on machines drawn as tables."""

from __future__ import annotations

import pytest

from koordlet.cluster.reporting.packing import packed
from koordlet.decision.snapshot import Cpu, Topology


def machine(sockets: int, numas: int, cores: int, threads: int = 2) -> Topology:
    """``numas`` in a socket, ``cores`` in a NUMA node. Threads of a core are apart by the number
    of cores, as Linux numbers them."""
    every = sockets * numas * cores
    cpus = []
    for thread in range(threads):
        for core in range(every):
            numa = core // cores
            cpus.append(Cpu(core + thread * every, core, numa // numas, numa, 0))
    return Topology(tuple(sorted(cpus)))


@pytest.mark.parametrize(
    ("count", "cpus"),
    [
        (0, set()),
        (1, {0}),
        (2, {0, 8}),
        (3, {0, 8, 1}),
        (4, {0, 1, 8, 9}),
        (5, {0, 1, 8, 9, 2}),
        (8, {0, 1, 2, 3, 8, 9, 10, 11}),
        (10, {0, 1, 2, 3, 8, 9, 10, 11, 4, 12}),
        (16, set(range(16))),
    ],
)
def test_two_sockets_of_two_numa_nodes(count: int, cpus: set[int]) -> None:
    assert packed(machine(2, 2, 2), count) == cpus


def test_the_fullest_part_is_used_up_first() -> None:
    """Socket 1 has fewer CPUs online: a whole core of it goes first, as in kubelet."""
    both = machine(2, 1, 4)
    some = Topology(tuple(cpu for cpu in both.cpus if cpu.id not in (5, 13)))
    assert packed(some, 2) == {4, 12}


def test_more_than_there_are() -> None:
    assert packed(machine(1, 1, 1), 3) is None
