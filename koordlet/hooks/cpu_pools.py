"""CPUs that pods share, by NUMA node: those the cluster lists, else those nobody has exclusively
(docs/reference/protocol.md 2.8).

The reference counts a pod that ended until kubelet forgets it
(docs/reference/metrics.md D-25); here it
holds nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from koordlet.decision.snapshot import CpuPool, Node, Pod, Snapshot, Topology
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.qos import QoSClass

Pools = tuple[CpuPool, ...]


def share_pools(snapshot: Snapshot) -> Pools:
    """Of LS pods, sorted by socket and NUMA node; every CPU in them is online."""
    return both(snapshot)[0]


def be_share_pools(snapshot: Snapshot) -> Pools:
    """Of BE pods: they may also use the CPUs of LSR pods, but not those of LSE pods."""
    return both(snapshot)[1]


def both(snapshot: Snapshot) -> tuple[Pools, Pools]:
    """The pools of LS pods, and those of BE pods."""
    return _both(_Same(snapshot.node, snapshot.pods))


class _Same:
    """A node and its pods as a key by identity: comparing 300 pods takes as long as asking."""

    def __init__(self, node: Node, pods: tuple[Pod, ...]) -> None:
        self.node, self.pods = node, pods

    def __hash__(self) -> int:
        return hash((id(self.node), id(self.pods)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.node is other.node and self.pods is other.pods


@lru_cache(maxsize=2)
def _both(of: _Same) -> tuple[Pools, Pools]:
    """Cached, because all pods of a node ask for the same."""
    exclusive = (pod for pod in of.pods if pod.raw_qos is QoSClass.LSE)
    return (
        _pools(of.node, of.node.cpus.share_pools, of.pods),
        _pools(of.node, of.node.cpus.be_share_pools, exclusive),
    )


def cpus_of(pools: Iterable[CpuPool], numa_nodes: Collection[int] | None = None) -> CPUSet:
    """All their CPUs; with ``numa_nodes`` only those of these nodes."""
    found = (pool.cpus for pool in pools if numa_nodes is None or pool.numa in numa_nodes)
    return frozenset[int]().union(*found)


def _pools(node: Node, reported: Pools | None, holders: Iterable[Pod]) -> Pools:
    if reported is not None:
        online = node.topology.ids
        return tuple(CpuPool(pool.socket, pool.numa, pool.cpus & online) for pool in reported)
    taken = node.cpus.reserved | node.cpus.system_exclusive | node.kubelet.static_cpus
    return _free(node.topology, taken.union(*(pod.own_cpus for pod in holders)))


def _free(topology: Topology, taken: CPUSet) -> Pools:
    free: dict[tuple[int, int], list[int]] = {}
    for cpu in topology.cpus:
        if cpu.id not in taken:
            free.setdefault((cpu.socket, cpu.numa), []).append(cpu.id)
    return tuple(CpuPool(*place, frozenset(free[place])) for place in sorted(free))
