"""The fields of API objects that overcommit reads, beside ``metadata``, as msgspec decodes them.

Whoever watches composes them with the metadata of an object; everything else is passed over while
decoding. `reading` makes facts of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model.amounts import Text

Resources = dict[str, Text]


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Keys as the API server writes them."""


class NodeCondition(Wire, frozen=True, gc=False):
    type: str = ""
    status: str = ""


READY = NodeCondition("Ready", "True")


class NodeStatus(Wire, frozen=True):
    """``conditions``: of a node that is ready this one alone, of others none."""

    capacity: Resources = {}
    allocatable: Resources = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            force_setattr(self, "conditions", (READY,) if READY in self.conditions else ())

    @property
    def ready(self) -> bool:
        return bool(self.conditions)


class ContainerResources(Wire, frozen=True, gc=False):
    requests: Resources = {}
    limits: Resources = {}


class Container(Wire, frozen=True):
    """``restart_policy`` Always makes a sidecar of an init container."""

    name: str = ""
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class PodSpec(Wire, frozen=True):
    """``resources``: of the pod as a whole, where it has some."""

    node_name: str = ""
    priority: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Resources = {}
    resources: ContainerResources = ContainerResources()


class PodCondition(Wire, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerStatus(Wire, frozen=True, gc=False):
    name: str = ""
    allocated_resources: Resources = {}
    resources: ContainerResources | None = None


class SizedStatus(Wire, frozen=True, gc=False):
    """What kubelet says of a pod's resources; the pod's own: of the pod as a whole."""

    conditions: tuple[PodCondition, ...] = ()
    allocated_resources: Resources = {}
    resources: ContainerResources | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class PodStatus(SizedStatus, frozen=True, gc=False):
    phase: str = ""
    qos_class: str = ""


class CPUAndMemory(msgspec.Struct, frozen=True):
    cpu: Text | None = None
    memory: Text | None = None


class Usage(msgspec.Struct, frozen=True):
    resources: CPUAndMemory = CPUAndMemory()


class NodeUsage(Wire, frozen=True):
    node_usage: Usage | None = None
    system_usage: Usage | None = None


class PodUsage(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: Usage = Usage()


class ApplicationUsage(Wire, frozen=True):
    name: str = ""
    priority: str = ""
    usage: Usage = Usage()


class Predicted(Wire, frozen=True):
    resource: Usage = Usage()


class NodeMetricStatus(Wire, frozen=True):
    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] | None = ()
    host_application_metric: tuple[ApplicationUsage, ...] | None = ()
    prod_reclaimable_metric: Predicted | None = None


class DeviceInfo(Wire, frozen=True):
    type: str = ""
    health: bool = False
    resources: Resources = {}


class DeviceSpec(Wire, frozen=True):
    devices: tuple[DeviceInfo, ...] | None = ()


class ZoneResource(Wire, frozen=True):
    name: str = ""
    capacity: Text = 0
    allocatable: Text = 0


class Zone(Wire, frozen=True):
    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] | None = ()


Tree = dict[str, Any]
"""An object or a part of one as JSON has it."""
