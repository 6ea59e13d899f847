"""The machine, as a snapshot holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlet.decision.snapshot import (
    BlockDevices,
    Capability,
    CpuPool,
    DeviceNode,
    Fault,
    KernelRules,
    Kubelet,
    KubepodsTree,
    Node,
    NodeCpus,
    Rdt,
    Topology,
)
from koordlet.kernel.block import read_block_devices
from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.host import Host
from koordlet.kernel.node_info import kernel_version
from koordlet.kernel.proc.files import memory
from koordlet.kernel.resctrl_info import Divisible, read_resctrl
from koordlet.kernel.verbs import read_verbs
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import CPUSharedPool, NodeReservation
from koordlet.protocol.annotations import NodeKeys, parse_node
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.resources import CPU


class ClusterNode(msgspec.Struct, frozen=True):
    """What a cluster says about the node; empty where there is none.

    ``annotations``: of the Node and its NodeResourceTopology. ``allocatable``: resource name ->
    amount, CPU in milli-cores, the rest in its own unit; None: not known. ``kubelet_...``: what
    kubelet keeps for itself, and whether its CPU manager policy is ``static``; ``static_cpus``:
    which CPUs this policy gave to containers for themselves. ``gives_any_pod_cpus``: by the node's
    bind policy the scheduler gives CPUs to pods of any class (docs/reference/central.md 5.2).
    """

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, int] | None = None
    kubelet_reserved_milli: int = 0
    kubelet_static_policy: bool = False
    static_cpus: CPUSet = frozenset()
    gives_any_pod_cpus: bool = False


NO_CLUSTER = ClusterNode()


class NodeOptions(msgspec.Struct, frozen=True):
    """What a configuration or a cluster says about the node because it cannot be read from it.

    ``annotations``: those that a cluster would have on the Node and its NodeResourceTopology.
    What one of the other fields says goes before them; 0, False and an empty set say nothing.
    ``before``: what annotations said last; of one that cannot be read now it still counts.
    """

    name: str
    kubelet_reserved_milli: int = 0
    annotation_reserved_milli: int = 0
    reserved_cpus: CPUSet = frozenset()
    system_qos_cpus: CPUSet = frozenset()
    best_effort_on_isolated_cpus: bool = False
    kubelet_static_policy: bool = False
    static_cpus: CPUSet = frozenset()
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    before: NodeKeys | None = None

    @property
    def node_keys(self) -> NodeKeys:
        return parse_node(self.annotations, self.before)


class Hardware(msgspec.Struct, frozen=True):
    """What the machine has besides CPUs and memory; see ``Node`` for the fields."""

    verbs_devices: Mapping[str, DeviceNode] = msgspec.field(default_factory=dict)
    resctrl: Divisible = Divisible()
    blocks: BlockDevices = BlockDevices()
    kernel: tuple[int, int] = (0, 0)


NO_HARDWARE = Hardware()
NO_TREE = KubepodsTree()


def read_hardware(host: Host, *, sys_root: str = "/sys", proc_root: str = "/proc") -> Hardware:
    """Read anew now and then, so it asks for details only where there is something to ask about.
    Raises OSError and ParseError."""
    return Hardware(
        read_verbs(host, sys_root) if host.exists(f"{sys_root}/class/infiniband_verbs") else {},
        read_resctrl(host, sys_root, proc_root),
        read_block_devices(host, sys_root, proc_root),
        kernel_version(host, proc_root),
    )


def memory_bytes(host: Host, proc_root: str = "/proc") -> int:
    """MemTotal. Raises OSError and ParseError."""
    return memory(host, proc_root).total_bytes


def refused(options: NodeOptions) -> tuple[Fault, ...]:
    """Annotations of the node that cannot be read."""
    return tuple(
        Fault(f"node {options.name}", f"{refusal.key} {refusal.path}".strip(), refusal.message)
        for refusal in options.node_keys.refused
    )


def node_of(
    options: NodeOptions,
    topology: Topology,
    memory_total_bytes: int,
    capabilities: Mapping[str, Capability],
    tree: Kubepods | None,
    hardware: Hardware = NO_HARDWARE,
) -> Node:
    """``Node`` put together. Its capacity is that of the online CPUs."""
    reported = options.node_keys
    reservation = reported.reservation or NodeReservation()
    exclusive, system_pool = _system_cpus(options, reported)
    policy = reported.cpu_manager_policy
    return Node(
        name=options.name,
        topology=topology,
        capacity_milli=1000 * len(topology.cpus),
        memory_bytes=memory_total_bytes,
        cpus=NodeCpus(
            reserved=options.reserved_cpus or _reserved_cpus(reservation, topology),
            annotation_reserved_milli=options.annotation_reserved_milli or reservation.cpu_milli,
            isolated=_isolated(options, topology),
            system_exclusive=exclusive,
            system_pool=system_pool,
            share_pools=_pools(reported.cpu_shared_pools),
            be_share_pools=_pools(reported.be_cpu_shared_pools),
            normalization_ratio=reported.cpu_normalization_ratio,
        ),
        kubelet=Kubelet(
            reserved_milli=options.kubelet_reserved_milli,
            static_policy=options.kubelet_static_policy
            or (policy is not None and policy.policy == "static"),
            static_cpus=options.static_cpus.union(
                *(each.cpuset for each in reported.pod_cpu_allocs or () if each.managed_by_kubelet)
            ),
        ),
        tree=NO_TREE if tree is None else KubepodsTree(tree.root, tree.burstable, tree.besteffort),
        rules=KernelRules(version=hardware.kernel, page_bytes=PAGE_BYTES),
        rdt=Rdt(**hardware.resctrl._asdict()),
        blocks=hardware.blocks,
        verbs_devices=hardware.verbs_devices,
        raw_allocatable={
            name: amount.milli if name == CPU else amount.value
            for name, amount in (reported.raw_allocatable or {}).items()
        },
        capabilities=capabilities,
        unread_annotations=reported.unread - _said_otherwise(options),
    )


def _said_otherwise(options: NodeOptions) -> set[str]:
    """Annotations that do not matter, because the configuration says the same thing itself."""
    found = set()
    if options.reserved_cpus:
        found.add(keys.NODE_RESERVATION.name)
    if options.system_qos_cpus:
        found.add(keys.SYSTEM_QOS_RESOURCE.name)
    if options.kubelet_static_policy:
        found.add(keys.CPU_MANAGER_POLICY.name)
    return found


def _system_cpus(options: NodeOptions, reported: NodeKeys) -> tuple[CPUSet, CPUSet]:
    """CPUs of the SYSTEM class: those that are its own, and all that it runs on."""
    if options.system_qos_cpus or reported.system_qos is None:
        return options.system_qos_cpus, options.system_qos_cpus
    pool = reported.system_qos.cpuset
    return pool if reported.system_qos.cpuset_exclusive else frozenset(), pool


def _isolated(options: NodeOptions, topology: Topology) -> CPUSet:
    if options.best_effort_on_isolated_cpus:
        return frozenset()
    return frozenset(cpu.id for cpu in topology.cpus if cpu.is_isolated)


def _reserved_cpus(reservation: NodeReservation, topology: Topology) -> CPUSet:
    """The CPUs listed, else as many as the quantity makes, by socket, NUMA node and core as
    kubelet would take them (docs/reference/protocol.md 2.7, 2.8)."""
    if reservation.reserved_cpus:
        return reservation.reserved_cpus
    ordered = sorted(topology.cpus, key=lambda cpu: (cpu.socket, cpu.numa, cpu.core, cpu.id))
    count = max(-(-reservation.cpu_milli // 1000), 0)
    return frozenset(cpu.id for cpu in ordered[:count])


def _pools(reported: Iterable[CPUSharedPool] | None) -> tuple[CpuPool, ...] | None:
    if reported is None:
        return None
    return tuple(CpuPool(pool.socket, pool.node, pool.cpuset) for pool in reported)
