"""CPUs of a node and how they stand to each other. Sets of CPUs are integers: bit n is CPU n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MOST_CPUS = 4096
MOST_NUMA_NODES = 64


class Cpu(NamedTuple):
    """``core`` is unique on the machine: ``socket << 16 | core``
    (docs/reference/central.md 5.2)."""

    id: int
    core: int
    node: int
    socket: int


def bits(mask: int) -> list[int]:
    """Ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def mask_of(members: Iterable[int]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


class Topology:
    """Not changed once made, and shared by nodes that are alike, so identity stands for content.

    ``cores``, ``nodes`` and ``sockets``: sets of CPUs by id, by ascending id. ``node_of_core`` and
    ``socket_of_core``, ``socket_of_node``: ids.
    """

    __slots__ = (
        "all",
        "core_of",
        "cores",
        "cores_of_node",
        "cores_of_socket",
        "cpus",
        "cpus_per_core",
        "cpus_per_node",
        "cpus_per_socket",
        "node_of_core",
        "nodes",
        "socket_of_core",
        "socket_of_node",
        "sockets",
    )

    def __init__(self, cpus: Iterable[Cpu]) -> None:
        self.cpus = tuple(sorted(set(cpus)))
        self.all = mask_of(cpu.id for cpu in self.cpus)
        self.core_of = {cpu.id: cpu.core for cpu in self.cpus}
        self.cores: dict[int, int] = {}
        self.nodes: dict[int, int] = {}
        self.sockets: dict[int, int] = {}
        self.node_of_core: dict[int, int] = {}
        self.socket_of_core: dict[int, int] = {}
        self.socket_of_node: dict[int, int] = {}
        for cpu in sorted(self.cpus, key=lambda each: (each.core, each.id)):
            bit = 1 << cpu.id
            self.cores[cpu.core] = self.cores.get(cpu.core, 0) | bit
            self.node_of_core.setdefault(cpu.core, cpu.node)
            self.socket_of_core.setdefault(cpu.core, cpu.socket)
        for cpu in sorted(self.cpus, key=lambda each: (each.node, each.id)):
            self.nodes[cpu.node] = self.nodes.get(cpu.node, 0) | 1 << cpu.id
            self.socket_of_node.setdefault(cpu.node, cpu.socket)
        for cpu in sorted(self.cpus, key=lambda each: (each.socket, each.id)):
            self.sockets[cpu.socket] = self.sockets.get(cpu.socket, 0) | 1 << cpu.id
        self.cores_of_node: dict[int, list[int]] = {node: [] for node in self.nodes}
        self.cores_of_socket: dict[int, list[int]] = {socket: [] for socket in self.sockets}
        for core in self.cores:
            self.cores_of_node[self.node_of_core[core]].append(core)
            self.cores_of_socket[self.socket_of_core[core]].append(core)
        count = len(self.cpus)
        self.cpus_per_core = count // max(len(self.cores), 1)
        self.cpus_per_node = count // max(len(self.nodes), 1)
        self.cpus_per_socket = count // max(len(self.sockets), 1)

    @property
    def valid(self) -> bool:
        return bool(self.cpus)

    def full_cores(self, free: int) -> int:
        """CPUs of cores that are free as a whole."""
        found = 0
        for core in self.cores.values():
            if core & free == core:
                found |= core
        return found

    def one_per_core(self, free: int) -> int:
        """The lowest free CPU of each core."""
        found = 0
        for core in self.cores.values():
            there = core & free
            found |= there & -there
        return found

    def nodes_of(self, cpus: int) -> int:
        """The NUMA nodes of a set of CPUs, as a set."""
        return mask_of(node for node, mask in self.nodes.items() if mask & cpus)
