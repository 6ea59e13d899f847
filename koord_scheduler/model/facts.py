"""What the companion knows of a cluster, as the formulas need it: plain integers and names.

Facts are made once for each version of an object (`reading`) and kept, so they hold little: no
facts refer to each other, and the garbage collector does not walk them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model.amounts import NOTHING, Amounts
from koordlet.protocol.qos import PriorityClass, QoSClass


class NodeFacts(msgspec.Struct, frozen=True):
    """``annotations``: those of the protocol alone. ``extended_capacity`` and
    ``extended_allocatable``: whole units of every resource whose name has a slash."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: Amounts = NOTHING
    allocatable: Amounts = NOTHING
    extended_capacity: Mapping[str, int] = {}
    extended_allocatable: Mapping[str, int] = {}


class PodFacts(msgspec.Struct, frozen=True, gc=False):
    """A pod that is on a node. ``key`` is ``namespace/name``; classes are those with default
    (docs/reference/protocol.md 1.1, 1.2); ``counts``: it runs or will (Running, Pending).
    ``numa_nodes``:
    what the scheduler gave it, in order; empty where it gave none."""

    key: str
    node: str
    counts: bool
    qos: QoSClass
    priority_class: PriorityClass | None
    cpu_milli: int
    memory_bytes: int
    numa_nodes: tuple[int, ...] = ()

    @property
    def request(self) -> Amounts:
        return Amounts(self.cpu_milli, self.memory_bytes)


class PodUsage(msgspec.Struct, frozen=True, gc=False):
    """``priority`` is the class that koordlet wrote, as text."""

    cpu_milli: int
    memory_bytes: int
    priority: str = ""


class ApplicationUsage(msgspec.Struct, frozen=True, gc=False):
    name: str
    cpu_milli: int
    memory_bytes: int
    priority: str = ""


class MetricFacts(msgspec.Struct, frozen=True):
    """Of a NodeMetric's status. ``pods`` by ``namespace/name``; a pod whose usage cannot be read is
    left out. ``node_usage`` is None where CPU or memory is missing. ``fault``: why the report says
    nothing of the node; empty where it does."""

    update_time_s: float | None = None
    node_usage: Amounts | None = None
    system_usage: Amounts = NOTHING
    pods: Mapping[str, PodUsage] = {}
    applications: tuple[ApplicationUsage, ...] = ()
    prod_reclaimable: Amounts | None = None
    fault: str = ""


class DeviceOfNode(msgspec.Struct, frozen=True):
    """``resources`` in whole units."""

    type: str
    healthy: bool
    resources: Mapping[str, int] = {}


class DeviceFacts(msgspec.Struct, frozen=True):
    labels: Mapping[str, str] = {}
    devices: tuple[DeviceOfNode, ...] = ()


class ZoneFacts(msgspec.Struct, frozen=True):
    """A NUMA node. ``batch_*`` is what stands there now, None where nothing does."""

    name: str
    numa_id: int
    allocatable: Amounts
    batch_cpu_milli: int | None = None
    batch_memory_bytes: int | None = None


class CPUModel(msgspec.Struct, frozen=True):
    model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


class TopologyFacts(msgspec.Struct, frozen=True):
    """Of a NodeResourceTopology. ``zones``: those with CPU or memory. ``cpu``: None where the
    annotation is missing or cannot be read."""

    zones: tuple[ZoneFacts, ...] = ()
    cpu: CPUModel | None = None


class Inputs(msgspec.Struct, frozen=True):
    """All that one node's resources depend on, beside the configuration."""

    node: NodeFacts
    metric: MetricFacts | None = None
    pods: tuple[PodFacts, ...] = ()
    device: DeviceFacts | None = None
    topology: TopologyFacts | None = None
