"""Shapes of the JSON that pod and node annotations carry
(docs/reference/protocol.md 2.2, 2.3, 2.7)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.quantity import Quantity
from koordlet.protocol.resources import CPU
from koordlet.protocol.slo import BlockCfg, MemoryQOS, Percent, Section

Amount = Annotated[Quantity, Meta(extra={"format": "quantity"})]
Bits = Annotated[Quantity, Meta(extra={"format": "bits"})]
CPUList = Annotated[CPUSet, Meta(extra={"format": "cpulist"})]
ResourceList = dict[str, Amount]
OomScore = Annotated[int, Meta(ge=-1000, le=1000)]
Index = Annotated[int, Meta(ge=0)]


class PodMemoryQOS(MemoryQOS, frozen=True):
    """(b): a policy, and the fields of MemoryQOS beside it."""

    policy: Literal["default", "none", "auto"] | None = None


class PodBlkIOQOS(Section, frozen=True):
    """(d)."""

    blocks: tuple[BlockCfg, ...] = ()


class PodNetworkQOS(Section, frozen=True):
    """(e): bits per second."""

    ingress_limit: Bits | None = None
    egress_limit: Bits | None = None


class ContainerExtendedResources(Section, frozen=True):
    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)


class ExtendedResourceSpec(Section, frozen=True):
    """(h): batch requests and limits by container name."""

    containers: dict[str, ContainerExtendedResources] = msgspec.field(default_factory=dict)


class CacheSchemata(Section, frozen=True):
    """``range``: first and last percent of the L3 ways."""

    range: tuple[Percent, Percent]


class CacheSchemataOfId(Section, frozen=True):
    range: tuple[Percent, Percent]
    cache_id: Index = msgspec.field(default=0, name="cacheID")


class CacheAllocation(Section, frozen=True):
    schemata: CacheSchemata | None = None
    schemata_per_cache: tuple[CacheSchemataOfId, ...] = ()


class BandwidthSchemata(Section, frozen=True):
    percent: Percent


class BandwidthSchemataOfId(Section, frozen=True):
    percent: Percent
    cache_id: Index = msgspec.field(default=0, name="cacheID")


class BandwidthAllocation(Section, frozen=True):
    schemata: BandwidthSchemata | None = None
    schemata_per_cache: tuple[BandwidthSchemataOfId, ...] = ()


class Resctrl(Section, frozen=True):
    """(i): what applies to all caches, and by cache id."""

    llc: CacheAllocation | None = None
    mb: BandwidthAllocation | None = None


class NumaNodeResource(Section, frozen=True):
    node: Index = 0
    resources: ResourceList = msgspec.field(default_factory=dict)


class ResourceStatus(Section, frozen=True):
    """What the scheduler gave the pod. An empty ``cpuset`` is none."""

    cpuset: CPUList = frozenset()
    numa_node_resources: tuple[NumaNodeResource, ...] = ()


class VirtualFunction(Section, frozen=True):
    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceExtension(Section, frozen=True):
    vfs: tuple[VirtualFunction, ...] = ()
    gpu_shared_resource_template: str = ""


class DeviceAllocation(Section, frozen=True):
    minor: int = 0
    resources: ResourceList = msgspec.field(default_factory=dict)
    id: str = ""
    extension: DeviceExtension | None = None
    bus_id: str = msgspec.field(default="", name="busID")


class NodeReservation(Section, frozen=True):
    """What the node keeps for work outside Kubernetes."""

    resources: ResourceList = msgspec.field(default_factory=dict)
    reserved_cpus: CPUList | None = msgspec.field(default=None, name="reservedCPUs")
    apply_policy: Literal["Default", "ReservedCPUsOnly"] | None = None

    @property
    def cpu_milli(self) -> int:
        """Milli-cores reserved: the CPUs listed, where some are, else the quantity."""
        if self.reserved_cpus:
            return len(self.reserved_cpus) * 1000
        amount = self.resources.get(CPU)
        return amount.milli if amount is not None else 0


class SystemQOSResource(Section, frozen=True):
    """CPUs of SYSTEM pods. Exclusive = taken out of the LS and BE pools."""

    cpuset: CPUList = frozenset()
    cpuset_exclusive: bool = True


class CPUSharedPool(Section, frozen=True):
    """CPUs of one NUMA node that pods of a kind share."""

    socket: Index = 0
    node: Index = 0
    cpuset: CPUList = frozenset()


class CPUManagerPolicy(Section, frozen=True):
    """Kubelet's CPU manager. Its ``reservedCPUs`` stay in the shared pools (2.8)."""

    policy: Literal["none", "static"] | None = None
    options: dict[str, str] = msgspec.field(default_factory=dict)
    reserved_cpus: CPUList = msgspec.field(default=frozenset(), name="reservedCPUs")


class PodCPUAlloc(Section, frozen=True):
    """CPUs that one pod has for itself."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: CPUList = frozenset()
    managed_by_kubelet: bool = False
