"""Which CPUs a pod gets (docs/reference/central.md 5.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.place.numa.topology import Topology, bits

FULL_PCPUS, SPREAD_BY_PCPUS = "FullPCPUs", "SpreadByPCPUs"
PCPU_LEVEL, NUMA_NODE_LEVEL = "PCPULevel", "NUMANodeLevel"
LEAST, MOST = "LeastAllocated", "MostAllocated"
_NO_REFS: Mapping[int, int] = {}


class Wish(NamedTuple):
    """``cpus``: how many. ``policy``: FullPCPUs or SpreadByPCPUs; ``required``: it must hold.
    ``exclusive``: PCPULevel, NUMANodeLevel or empty. ``strategy``: MostAllocated fills what is in
    use first, LeastAllocated what is not."""

    cpus: int
    policy: str = FULL_PCPUS
    required: bool = False
    exclusive: str = ""
    strategy: str = LEAST


class Held(NamedTuple):
    """CPUs of pods that are PCPULevel and of those that are NUMANodeLevel."""

    by_core: int = 0
    by_node: int = 0


NONE_HELD = Held()


def usable(topology: Topology, free: int, wish: Wish) -> int:
    """The free CPUs that a required policy can use. Any ``wish.cpus`` of them serve (of
    FullPCPUs: whole cores), so `take` succeeds where there are that many."""
    if not wish.required:
        return free
    if wish.policy == FULL_PCPUS:
        return topology.full_cores(free)
    return topology.one_per_core(free)


def take(
    topology: Topology,
    free: int,
    wish: Wish,
    held: Held = NONE_HELD,
    *,
    preferred: int = 0,
    refs: Mapping[int, int] = _NO_REFS,
) -> int | None:
    """The set of CPUs; None where there are not enough. ``preferred``: taken first, the leftovers
    of a reservation. ``refs``: how many pods share a CPU of ``free``; empty where none is shared.
    """
    free = usable(topology, free, wish)
    first = preferred & free
    found = 0
    if first:
        part = wish._replace(cpus=min(wish.cpus, first.bit_count()))
        found = _Taking(topology, first, part, held, refs).run() or 0
    rest = wish.cpus - found.bit_count()
    if rest > 0:
        taking = _Taking(topology, free & ~first, wish._replace(cpus=rest), held, refs)
        more = taking.run()
        if more is None:
            return None
        found |= more
    if wish.required and not _holds(topology, found, wish.policy):
        return None
    return found


def _holds(topology: Topology, cpus: int, policy: str) -> bool:
    if policy == FULL_PCPUS:
        return topology.full_cores(cpus) == cpus
    return topology.one_per_core(cpus) == cpus


class _Taking:
    """What is left while CPUs are taken one group after the other."""

    def __init__(
        self, topology: Topology, free: int, wish: Wish, held: Held, refs: Mapping[int, int]
    ) -> None:
        self.topology = topology
        self.free = free
        self.wish = wish
        self.need = wish.cpus
        self.refs = refs
        self.result = 0
        self.sign = 1 if wish.strategy == MOST else -1
        by_core = held.by_core if wish.exclusive == PCPU_LEVEL else 0
        by_node = held.by_node if wish.exclusive == NUMA_NODE_LEVEL else 0
        self.shut_cores = {c for c, mask in topology.cores.items() if mask & by_core}
        self.shut_nodes = {n for n, mask in topology.nodes.items() if mask & by_node}

    def run(self) -> int | None:
        if self.need < 1:
            return 0
        if self.need > self.free.bit_count():
            return None
        topology = self.topology
        full = self.wish.policy == FULL_PCPUS
        if full or topology.cpus_per_core == 1:
            self._full_cores()
        if self.need and not full:
            self._spread()
        if self.need:
            self._whatever_is_left()
        return self.result

    # Steps 1 to 4.

    def _full_cores(self) -> None:
        topology = self.topology
        whole = topology.full_cores(self.free)
        of_socket = {s: whole & mask for s, mask in topology.sockets.items()}
        if self.need <= topology.cpus_per_node:
            for exclude in (True, False):
                free = self._open(cores=False) if exclude else self.free
                for node in self._nodes(free, topology.full_cores(free)):
                    if (free & whole & topology.nodes[node]).bit_count() >= self.need:
                        self._take(self._flat(whole, topology.cores_of_node[node]))
                        return
        if self.need <= topology.cpus_per_socket:
            sockets = sorted(of_socket, key=lambda s: (self.sign * of_socket[s].bit_count(), s))
            for socket in sockets:
                if of_socket[socket].bit_count() >= self.need:
                    self._take(self._flat(whole, topology.cores_of_socket[socket]))
                    return
        kept = []
        for socket in sorted(of_socket, key=lambda s: (-of_socket[s].bit_count(), s)):
            if self.need >= of_socket[socket].bit_count():
                self._take(bits(of_socket[socket]))
                if not self.need:
                    return
            else:
                kept.append(socket)
        for socket in sorted(kept, key=lambda s: (of_socket[s].bit_count(), s)):
            flat = self._flat(whole, topology.cores_of_socket[socket])
            size = topology.cpus_per_core
            for start in range(0, len(flat), size):
                if self.need < size:
                    return
                self._take(flat[start : start + size])

    def _flat(self, whole: int, cores: Iterable[int]) -> list[int]:
        """CPUs of those of the cores that are free as a whole, core by core."""
        masks = self.topology.cores
        there = [core for core in cores if masks[core] & whole]
        there.sort(key=lambda core: (self._refs(masks[core]), core))
        return [cpu for core in there for cpu in bits(masks[core])]

    # Steps 5 and 6.

    def _spread(self) -> None:
        topology = self.topology
        if self.need <= topology.cpus_per_node:
            for exclude in (True, False):
                free = self._open() if exclude else self.free
                for node in self._nodes(free, free):
                    cpus = self._listed(free & topology.nodes[node], exclude)
                    if len(cpus) >= self.need:
                        self._take(self._round_robin(cpus))
                        return
        if self.need <= topology.cpus_per_socket:
            for exclude in (True, False):
                free = self._open(nodes=False) if exclude else self.free
                lists = [self._listed(free & mask, exclude) for mask in topology.sockets.values()]
                for cpus in sorted(lists, key=lambda each: self.sign * len(each)):
                    if len(cpus) >= self.need:
                        self._take(self._round_robin(cpus))
                        return

    def _listed(self, free: int, exclude: bool) -> list[int]:
        """Return them, those that few pods share first; with ``exclude`` one of each core."""
        cpus = self._by_refs(free)
        if not exclude:
            return cpus
        first: dict[int, int] = {}
        for cpu in cpus:
            first.setdefault(self._core(cpu), cpu)
        return list(first.values())

    # Step 7.

    def _whatever_is_left(self) -> None:
        topology = self.topology
        for exclude in (True, False):
            result = {s: (self.result & m).bit_count() for s, m in topology.sockets.items()}
            free = self._open() if exclude else self.free
            sockets = {s: (free & m).bit_count() for s, m in topology.sockets.items()}
            nodes = {n: (free & m).bit_count() for n, m in topology.nodes.items()}
            cores = [core for core, mask in topology.cores.items() if mask & free]
            keys = {
                core: (
                    -result[topology.socket_of_core[core]],
                    self.sign * sockets[topology.socket_of_core[core]],
                    self.sign * nodes[topology.node_of_core[core]],
                    (topology.cores[core] & free).bit_count(),
                    topology.socket_of_core[core],
                    self._refs(topology.cores[core]),
                    core,
                )
                for core in cores
            }
            cores.sort(key=keys.__getitem__)
            flat = [cpu for core in cores for cpu in self._by_refs(topology.cores[core] & free)]
            self._take(self._round_robin(flat))
            if not self.need:
                return

    # Helpers.

    def _core(self, cpu: int) -> int:
        return self.topology.core_of[cpu]

    def _round_robin(self, cpus: list[int]) -> list[int]:
        """The first CPU of every core, then the second of each, and so on."""
        if len(cpus) <= self.topology.cpus_per_core:
            return cpus
        by_core: dict[int, list[int]] = {}
        for cpu in cpus:
            by_core.setdefault(self._core(cpu), []).append(cpu)
        longest = max(len(each) for each in by_core.values())
        return [each[i] for i in range(longest) for each in by_core.values() if i < len(each)]

    def _open(self, *, cores: bool = True, nodes: bool = True) -> int:
        """Return what is free where no pod shuts this one out."""
        free = self.free
        for core in self.shut_cores if cores else ():
            free &= ~self.topology.cores[core]
        for node in self.shut_nodes if nodes else ():
            free &= ~self.topology.nodes[node]
        return free

    def _nodes(self, free: int, counted: int) -> list[int]:
        """Return NUMA nodes in the order in which they are tried."""
        nodes, sockets = self.topology.nodes, self.topology.sockets
        return sorted(
            nodes,
            key=lambda n: (
                self.sign * (counted & nodes[n]).bit_count(),
                self.sign * (free & sockets[self.topology.socket_of_node[n]]).bit_count(),
                n,
            ),
        )

    def _by_refs(self, cpus: int) -> list[int]:
        found = bits(cpus)
        if self.refs:
            found.sort(key=lambda cpu: (self.refs.get(cpu, 0), cpu))
        return found

    def _refs(self, cpus: int) -> int:
        return sum(self.refs.get(cpu, 0) for cpu in bits(cpus)) if self.refs else 0

    def _take(self, cpus: list[int]) -> None:
        """As many of them as are needed."""
        for cpu in cpus[: self.need]:
            self.result |= 1 << cpu
        self.need -= min(len(cpus), self.need)
        self.free &= ~self.result
