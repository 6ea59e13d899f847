"""CPUs that pods share, as the NodeResourceTopology tells them to the scheduler
(docs/reference/metrics.md
6.6). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from koordlet.cluster.reporting.packing import packed
from koordlet.decision.snapshot import CpuPool, Pod, Topology
from koordlet.protocol.annotation_types import NodeReservation, PodCPUAlloc, SystemQOSResource
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.qos import QoSClass


class KubeletCpus(NamedTuple):
    """Kubelet's CPU and topology managers. ``policy``: empty where kubelet was not asked.
    ``reserved_cpus``: its ``reservedSystemCPUs``; ``reserved_milli``: kube- and system-reserved.
    ``given``: CPUs that its static policy gave to containers for themselves, by uid of the pod.
    ``topology_word``: what the NodeResourceTopology says of the topology manager already, where
    kubelet has not been heard; it goes before the other two."""

    policy: str = ""
    options: Mapping[str, str] = {}
    reserved_cpus: CPUSet = frozenset()
    reserved_milli: int = 0
    topology_policy: str = ""
    topology_scope: str = ""
    topology_word: str = ""
    given: Mapping[str, CPUSet] = {}

    @property
    def is_static(self) -> bool:
        return self.policy == "static"


class Pools(NamedTuple):
    """One entry for each NUMA node, in order of socket and node; ``be`` is for BE pods."""

    ls: tuple[CpuPool, ...]
    be: tuple[CpuPool, ...]


def kubelet_allocations(kubelet: KubeletCpus, pods: tuple[Pod, ...]) -> tuple[PodCPUAlloc, ...]:
    """Pods to which kubelet itself gave CPUs, by uid. Of a pod that nobody lists any more only the
    uid is known; its CPUs are taken all the same."""
    known = {pod.uid: pod for pod in pods}
    found = []
    for uid, cpus in sorted(kubelet.given.items() if kubelet.is_static else ()):
        pod = known.get(uid)
        if not cpus or (pod is not None and _is_ours(pod)):
            continue
        namespace, name = (pod.namespace, pod.name) if pod is not None else ("", "")
        found.append(PodCPUAlloc(namespace, name, uid, cpus, True))
    return tuple(found)


def _is_ours(pod: Pod) -> bool:
    """Whether koordlet decides on which CPUs it runs."""
    return pod.raw_qos in (QoSClass.LS, QoSClass.BE) or bool(pod.pinned_cpus)


def pools(
    topology: Topology,
    pods: tuple[Pod, ...],
    allocations: tuple[PodCPUAlloc, ...],
    reserved: CPUSet,
    system: SystemQOSResource | None,
) -> Pools:
    """Pods that have ended hold nothing, and a cpuset counts for LSE and LSR pods alone, as for the
    node's own decisions. What reservations empty stays as an entry without CPUs."""
    static = frozenset[int]().union(*(each.cpuset for each in allocations))
    exclusive = system.cpuset if system is not None and system.cpuset_exclusive else frozenset()
    kept = reserved | exclusive
    every = frozenset[int]().union(*(pod.own_cpus for pod in pods))
    lse = (pod.own_cpus for pod in pods if pod.raw_qos is QoSClass.LSE)
    return Pools(
        _by_numa(topology, static | every, kept),
        _by_numa(topology, static.union(*lse), kept),
    )


def _by_numa(topology: Topology, taken: CPUSet, kept: CPUSet) -> tuple[CpuPool, ...]:
    found: dict[tuple[int, int], set[int]] = {}
    for cpu in topology.cpus:
        if cpu.id not in taken:
            found.setdefault((cpu.socket, cpu.numa), set()).add(cpu.id)
    return tuple(CpuPool(*place, frozenset(found[place] - kept)) for place in sorted(found))


def reserved_cpus(topology: Topology, reservation: NodeReservation | None) -> CPUSet:
    """Those of the Node's reservation: the CPUs listed, else as many as the quantity makes."""
    if reservation is None:
        return frozenset()
    if reservation.reserved_cpus:
        return reservation.reserved_cpus
    return packed(topology, math.ceil(max(reservation.cpu_milli, 0) / 1000)) or frozenset()


def kubelet_reserved(topology: Topology, kubelet: KubeletCpus) -> CPUSet:
    """Those of the static policy; empty where they are not on this node."""
    if not kubelet.is_static:
        return frozenset()
    if kubelet.reserved_cpus:
        return kubelet.reserved_cpus if kubelet.reserved_cpus <= topology.ids else frozenset()
    return packed(topology, math.ceil(max(kubelet.reserved_milli, 0) / 1000)) or frozenset()
