"""The objects that a node reads from its cluster, as far as it looks at them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.protocol.annotations import received

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API server's image of a pod that kubelet runs from a file: the uid under which
kubelet runs it."""
_UID_CHARACTERS = 64


class Address(Shape, frozen=True):
    """``type``: ``InternalIP``, ``Hostname`` ..."""

    type: str = ""
    address: str = ""


class Endpoint(Shape, frozen=True):
    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(Shape, frozen=True):
    kubelet_endpoint: Endpoint = Endpoint()


class NodeStatus(Shape, frozen=True):
    """Amounts are quantities as text."""

    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    addresses: tuple[Address, ...] = ()
    daemon_endpoints: DaemonEndpoints = DaemonEndpoints()


class Node(Object, frozen=True):
    status: NodeStatus = NodeStatus()


class NodeSLO(Object, frozen=True):
    """``spec`` as JSON has it: each section is read by itself, so that a bad one costs only
    itself."""

    open_ended: ClassVar[bool] = True
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class PodMetadata(Metadata, frozen=True):
    """Keeps of labels and annotations what koordlet reads alone, each as long as it may be: their
    authors decide how large they are."""

    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        annotations = received(self.annotations)
        if MIRROR in self.annotations:
            annotations[MIRROR] = self.annotations[MIRROR][:_UID_CHARACTERS]
        msgspec.structs.force_setattr(self, "labels", received(self.labels))
        msgspec.structs.force_setattr(self, "annotations", annotations)


class Amounts(Shape, frozen=True):
    """Quantities as text."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class PodContainer(Shape, frozen=True):
    """``restart_policy`` is ``Always`` on an init container that stays beside the others."""

    name: str = ""
    resources: Amounts = Amounts()
    restart_policy: str = ""


class PodSpec(Shape, frozen=True):
    """``resources``: of the pod as a whole (KEP-2837)."""

    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    priority: int | None = None
    resources: Amounts | None = None
    overhead: dict[str, str] = msgspec.field(default_factory=dict)
    host_network: bool = False
    runtime_class_name: str | None = None


class ContainerStatus(Shape, frozen=True):
    """``resources``: what it runs with while a resize is on the way or refused."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    resources: Amounts | None = None


class PodIp(Shape, frozen=True):
    ip: str = ""


class PodCondition(Shape, frozen=True):
    type: str = ""
    status: str = ""


class PodStatus(Shape, frozen=True):
    """``resources``: of the pod as a whole, as ``ContainerStatus`` has them."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    qos_class: str = ""
    resources: Amounts | None = None
    pod_ips: tuple[PodIp, ...] = msgspec.field(default=(), name="podIPs")
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


NODES = Kind("", "v1", "Node", "nodes", False, Node)
NODE_SLOS = Kind("slo.koordinator.sh", "v1alpha1", "NodeSLO", "nodeslos", False, NodeSLO)
PODS = Kind("", "v1", "Pod", "pods", True, Pod)
