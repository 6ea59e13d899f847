"""What the companion keeps of the objects that it watches, and where they are.

A cluster of 5,000 nodes has 100,000 pods: each object drops here what nobody reads, and what many
objects have alike is kept once.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model import wire
from koord_scheduler.model.facts import NodeFacts, PodFacts
from koord_scheduler.model.reading import kept_annotations, node_facts, pod_facts
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.kube.scan import shallow
from koordlet.protocol.qos import QoSClass

T = TypeVar("T")
NO_NODE = NodeFacts("")
NO_POD = PodFacts("", "", False, QoSClass.LS, None, 0, 0)

_NOTHING: dict[str, str] = {}
"""Shared by all that have none. Nobody may write to labels and annotations of an object."""
# What is alike is shared while these hold it. They are emptied when they are full: much of it is of
# the past then, and what is in use is shared anew as it comes.
_MOST_LABELS, _MOST_VALUES, _MOST_PARTS = 4096, 20_000, 512
_labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
_values: dict[Any, Any] = {}
_parts: dict[bytes, msgspec.Raw] = {}


def _share(labels: dict[str, str]) -> dict[str, str]:
    """The same labels of many pods, once."""
    if not labels:
        return _NOTHING
    if len(_labels) >= _MOST_LABELS:
        _labels.clear()
    return _labels.setdefault(tuple(sorted(labels.items())), labels)


def once(value: T, key: Hashable = None) -> T:
    """An equal value that is there already. ``key``: what the value is by, where it has no hash."""
    if len(_values) >= _MOST_VALUES:
        _values.clear()
    found: T = _values.setdefault(value if key is None else key, value)
    return found


def _shared(raw: msgspec.Raw) -> msgspec.Raw:
    """For parts that many objects have alike. A copy: a Raw holds on to the page of the list that
    it stands in."""
    if len(_parts) >= _MOST_PARTS:
        _parts.clear()
    key = bytes(raw)
    found = _parts.get(key)
    if found is None:
        found = _parts[key] = msgspec.Raw(key)
    return found


def _of_the_protocol(annotations: dict[str, str]) -> dict[str, str]:
    return kept_annotations(annotations) or _NOTHING


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
        for amounts in (self.status.capacity, self.status.allocatable):
            for name, amount in amounts.items():
                amounts[name] = once(amount)
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
    ``spec`` has no containers. It has no resourceVersion, and a uid only while it waits for a node:
    nobody writes to pods on nodes that were read here."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: wire.PodStatus = wire.PodStatus()
    facts: PodFacts = NO_POD

    def __post_init__(self) -> None:
        meta = self.metadata
        made = pod_facts(
            meta.namespace, meta.name, meta.labels, meta.annotations, self.spec, self.status
        )
        for amount in ("cpu_milli", "memory_bytes"):
            force_setattr(made, amount, once(getattr(made, amount)))
        force_setattr(self, "facts", made)
        _slim(self, _share(meta.labels))
        force_setattr(meta, "resource_version", "")
        force_setattr(meta, "owner_references", once(meta.owner_references))
        if made.node:
            force_setattr(meta, "uid", "")
        spec = self.spec
        kept = PodSpec(
            node_name=made.node,
            priority=spec.priority,
            priority_class_name=spec.priority_class_name,
            scheduler_name=spec.scheduler_name,
        )
        alike = (made.node, spec.priority, spec.priority_class_name, spec.scheduler_name)
        force_setattr(self, "spec", once(kept, alike))
        status = wire.PodStatus(phase=self.status.phase, qos_class=self.status.qos_class)
        force_setattr(self, "status", once(status, (status.phase, status.qos_class)))


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class _Unread(Object, frozen=True):
    """Parts as the server wrote them: they are read when they are needed."""

    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)
        force_setattr(self, "spec", _shared(self.spec))
        force_setattr(self, "status", self.status.copy())


class NodeMetric(Object, frozen=True):
    """``packed`` is the status, compressed: 5,000 reports of 20 pods are 5 instead of 22 MiB. It
    changes with each report, ``spec`` hardly ever. It has no resourceVersion, as a Node."""

    spec: msgspec.Raw = msgspec.Raw(b"")
    packed: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="status")

    def __post_init__(self) -> None:
        _slim(self, self.metadata.labels or _NOTHING)
        force_setattr(self.metadata, "resource_version", "")
        force_setattr(self, "spec", _shared(self.spec))
        if self.packed:
            force_setattr(self, "packed", msgspec.Raw(zlib.compress(self.packed, 1)))

    @property
    def status(self) -> msgspec.Raw:
        """As the server wrote it; empty where it has none."""
        return msgspec.Raw(zlib.decompress(self.packed)) if self.packed else self.packed


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
    return msgspec.json.decode(shallow(raw)) if bytes(raw) else None


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
