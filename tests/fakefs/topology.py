"""Machine shapes: sockets, NUMA nodes, L3 groups, SMT, offline CPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FakeCpu:
    """One present logical CPU; ``core`` counts inside its socket, as ``core_id`` does."""

    id: int
    core: int
    socket: int
    numa: int
    l3: int
    online: bool = True


@dataclass(frozen=True)
class FakeTopology:
    """Present CPUs by id, and the number of NUMA nodes (a node may have no CPU)."""

    cpus: tuple[FakeCpu, ...]
    numa_nodes: int = 1

    @property
    def online(self) -> frozenset[int]:
        return frozenset(cpu.id for cpu in self.cpus if cpu.online)

    @property
    def present(self) -> frozenset[int]:
        return frozenset(cpu.id for cpu in self.cpus)

    @property
    def possible_count(self) -> int:
        """nr_cpu_ids: CPU lists are bitmaps of this length."""
        return max(self.present) + 1

    @property
    def nodes(self) -> frozenset[int]:
        return frozenset(range(self.numa_nodes))


def shape(
    *,
    sockets: int = 1,
    numa_per_socket: int = 1,
    l3_per_numa: int = 1,
    cores_per_l3: int = 2,
    smt: int = 1,
    offline: frozenset[int] = frozenset(),
    adjacent_siblings: bool = False,
) -> FakeTopology:
    """A regular machine.

    CPU ids count all cores first, then their siblings (x86 servers); with
    ``adjacent_siblings`` the threads of a core are neighbours (0,1).
    """
    cores_per_socket = numa_per_socket * l3_per_numa * cores_per_l3
    cores = sockets * cores_per_socket
    cpus: list[FakeCpu] = []
    for core in range(cores):
        group = core // cores_per_l3
        for thread in range(smt):
            cpu = core * smt + thread if adjacent_siblings else thread * cores + core
            cpus.append(
                FakeCpu(
                    id=cpu,
                    core=core % cores_per_socket,
                    socket=core // cores_per_socket,
                    numa=group // l3_per_numa,
                    l3=group,
                    online=cpu not in offline,
                )
            )
    return FakeTopology(tuple(sorted(cpus, key=lambda c: c.id)), sockets * numa_per_socket)
