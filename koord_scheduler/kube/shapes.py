"""What the companion keeps of the objects that it watches, and where they are.

A cluster of 5,000 nodes has 100,000 pods: each object drops here what nobody reads, and what many
objects have alike is kept once.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model import wire
from koord_scheduler.model.facts import NodeFacts, PodFacts
from koord_scheduler.model.reading import node_facts, pod_facts
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.protocol.qos import QoSClass

T = TypeVar("T")
NO_NODE = NodeFacts("")
NO_POD = PodFacts("", "", False, QoSClass.LS, None, 0, 0)

KEPT_ANNOTATIONS = "koordinator.sh/"
"""Part of the key of an annotation of the protocol; others are dropped."""
_NOTHING: dict[str, str] = {}
"""Shared by all that have none. Nobody may write to labels and annotations of an object."""
_MOST_SHARED = 65_536
_labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
_values: dict[Any, Any] = {}


def _share(labels: dict[str, str]) -> dict[str, str]:
    """The same labels of many pods, once."""
    if not labels:
        return _NOTHING
    if len(_labels) >= _MOST_SHARED:
        _labels.clear()  # many are of pods that are gone; those in use are shared anew as they come
    return _labels.setdefault(tuple(sorted(labels.items())), labels)


def _once(value: T, key: Hashable = None) -> T:
    """An equal value that is there already. ``key``: what the value is by, where it has no hash."""
    if len(_values) >= _MOST_SHARED:
        _values.clear()
    found: T = _values.setdefault(value if key is None else key, value)
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
    """``facts`` are made of the rest and stand on no wire. It has no resourceVersion: what this
    project writes on a node is its own, whatever others write there."""

    spec: NodeSpec = NodeSpec()
    status: wire.NodeStatus = wire.NodeStatus()
    facts: NodeFacts = NO_NODE

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)
        meta = self.metadata
        force_setattr(meta, "resource_version", "")
        made = node_facts(meta.name, meta.labels, meta.annotations, self.status)
        force_setattr(self, "facts", made)


class Owner(Shape, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class PodMetadata(Metadata, frozen=True, gc=False):
    owner_references: tuple[Owner, ...] = ()


class PodSpec(wire.PodSpec, frozen=True, gc=False):
    priority_class_name: str = ""
    scheduler_name: str = ""


class Pod(Object, frozen=True, gc=False):
    """``facts`` are made of the rest and stand on no wire. What containers ask for is there alone:
    ``spec`` has no containers. It has no resourceVersion: nobody writes to pods read here."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: wire.PodStatus = wire.PodStatus()
    facts: PodFacts = NO_POD

    def __post_init__(self) -> None:
        meta = self.metadata
        made = pod_facts(
            meta.namespace, meta.name, meta.labels, meta.annotations, self.spec, self.status
        )
        force_setattr(self, "facts", made)
        _slim(self, _share(meta.labels))
        force_setattr(meta, "resource_version", "")
        force_setattr(meta, "owner_references", _once(meta.owner_references))
        spec = self.spec
        kept = PodSpec(
            node_name=made.node,
            priority=spec.priority,
            priority_class_name=spec.priority_class_name,
            scheduler_name=spec.scheduler_name,
        )
        alike = (made.node, spec.priority, spec.priority_class_name, spec.scheduler_name)
        force_setattr(self, "spec", _once(kept, alike))
        force_setattr(self, "status", _once(self.status))


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
    """``status`` changes with each report, ``spec`` hardly ever."""


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
