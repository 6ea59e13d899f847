"""Two cores of two threads on two NUMA nodes, as QEMU makes them, read from a real sysfs."""

from __future__ import annotations

import os

import pytest

from koordlet.decision.snapshot import Node, NodeCpus
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.topology import numa_nodes, read_topology
from koordlet.qos.cpu_suppress.pick import choose, pools

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif("KOORDLET_GUEST" not in os.environ, reason="for the guests of make test-vm"),
]


def test_siblings_and_nodes() -> None:
    cpus = read_topology(LinuxHost()).cpus
    assert [(cpu.id, cpu.core, cpu.numa) for cpu in cpus] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 1, 1),
        (3, 1, 1),
    ]
    assert numa_nodes(LinuxHost()) == (0, 1)


@pytest.mark.parametrize("reserved", [frozenset({0}), frozenset({3})])
def test_best_effort_gets_whole_cores_first(reserved: frozenset[int]) -> None:
    """With one CPU taken, two of the other three: the siblings of the untouched core."""
    topology = read_topology(LinuxHost())
    node = Node("guest", topology, capacity_milli=4000, memory_bytes=0, cpus=NodeCpus(reserved))
    expected = {2, 3} if 0 in reserved else {0, 1}
    assert choose(pools(node, ()), 2) == expected
