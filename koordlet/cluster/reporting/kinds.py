"""The objects of its node that koordlet writes, as far as it looks at them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object


class NodeMetricObject(Object, frozen=True):
    """``spec`` as JSON has it; a part that cannot be read has its default."""

    open_ended: ClassVar[bool] = True
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class DeviceObject(Object, frozen=True):
    """``spec`` as JSON has it, because others may have written it."""

    open_ended: ClassVar[bool] = True
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class TopologyObject(Object, frozen=True):
    open_ended: ClassVar[bool] = True
    topology_policies: tuple[Any, ...] = ()
    zones: tuple[Any, ...] = ()


_SCHEDULING = "scheduling.koordinator.sh"
_TOPOLOGY = "topology.node.k8s.io"
NODE_METRICS = Kind(
    "slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, NodeMetricObject
)
DEVICES = Kind(_SCHEDULING, "v1alpha1", "Device", "devices", False, DeviceObject)
TOPOLOGIES = Kind(
    _TOPOLOGY,
    "v1alpha1",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    TopologyObject,
)


def owner(name: str, uid: str) -> list[dict[str, Any]]:
    """The Node as the owner of an object: it goes with it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
