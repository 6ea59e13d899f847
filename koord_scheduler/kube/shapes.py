"""What the companion keeps of the objects that it watches, and where they are.

A cluster of 5,000 nodes has 100,000 pods: each object drops here what nobody reads, and what many
objects have alike is kept once.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model import wire
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape

KEPT_ANNOTATIONS = "koordinator.sh/"
"""Part of the key of an annotation of the protocol; others are dropped."""
_NOTHING: dict[str, str] = {}
"""Shared by all that have none. Nobody may write to labels and annotations of an object."""
_SHARED: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
_MOST_SHARED = 65_536


def _share(labels: dict[str, str]) -> dict[str, str]:
    """The same labels of many pods, once."""
    if not labels:
        return _NOTHING
    key = tuple(sorted(labels.items()))
    found = _SHARED.get(key)
    if found is None:
        if len(_SHARED) >= _MOST_SHARED:
            _SHARED.clear()  # labels of the past; those in use are made anew as they come
        found = _SHARED[key] = labels
    return found


def _of_the_protocol(annotations: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in annotations.items() if KEPT_ANNOTATIONS in k} or _NOTHING


def _slim(item: Object, labels: dict[str, str]) -> None:
    meta = item.metadata
    force_setattr(meta, "labels", labels)
    force_setattr(meta, "annotations", _of_the_protocol(meta.annotations))
    force_setattr(meta, "namespace", sys.intern(meta.namespace))


class NodeSpec(Shape, frozen=True):
    unschedulable: bool = False


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: wire.NodeStatus = wire.NodeStatus()

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)


class ContainerResources(Shape, frozen=True):
    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Container(Shape, frozen=True):
    name: str = ""
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""
    """``Always`` makes an init container a sidecar."""


class PodSpec(Shape, frozen=True):
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str] = msgspec.field(default_factory=dict)


class PodStatus(Shape, frozen=True):
    phase: str = ""
    qos_class: str = ""


class Owner(Shape, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class PodMetadata(Metadata, frozen=True):
    owner_references: tuple[Owner, ...] = ()


class Pod(Object, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        _slim(self, _share(self.metadata.labels))


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class _Unread(Object, frozen=True):
    """Parts as the server wrote them: they are read when they are needed."""

    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)
        # A copy: a Raw holds on to the page of the list that it stands in.
        force_setattr(self, "spec", self.spec.copy())
        force_setattr(self, "status", self.status.copy())


class NodeMetric(_Unread, frozen=True):
    pass


class NodeSLO(_Unread, frozen=True):
    pass


class Device(_Unread, frozen=True):
    pass


class NodeResourceTopology(Object, frozen=True):
    topology_policies: tuple[str, ...] = ()
    zones: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)
        force_setattr(self, "zones", self.zones.copy())


def tree(raw: msgspec.Raw) -> Any:
    """The JSON value of a part; None where the object has none. Raises ValueError for text that is
    no JSON, which no API server sends."""
    return msgspec.json.decode(raw) if bytes(raw) else None


NODES = Kind("", "v1", "Node", "nodes", False, Node)
PODS = Kind("", "v1", "Pod", "pods", True, Pod)
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps", True, ConfigMap)
_SLO = ("slo.koordinator.sh", "v1alpha1")
NODE_METRICS = Kind(*_SLO, "NodeMetric", "nodemetrics", False, NodeMetric)
NODE_SLOS = Kind(*_SLO, "NodeSLO", "nodeslos", False, NodeSLO)
DEVICES = Kind("scheduling.koordinator.sh", "v1alpha1", "Device", "devices", False, Device)
TOPOLOGIES = Kind(
    "topology.node.k8s.io",
    "v1alpha1",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    NodeResourceTopology,
)
