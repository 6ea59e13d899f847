"""API nodes to ``Node``."""

from __future__ import annotations

import sys

import msgspec

from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.cluster import nodes
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.model.wire import NodeCondition, Resources, Wire

READY = "Ready"
_PROTOCOL = "koordinator.sh/"
_MOST_TAINTS = 256


class Taint(Wire, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Wire, frozen=True, gc=False):
    allocatable: Resources = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class NodeMetadata(Wire, frozen=True, gc=False):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class SchedulingNode(Wire, frozen=True, gc=False):
    """A node as the API server sends it."""

    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def node_of(node: SchedulingNode) -> nodes.Node:
    """Without a condition Ready a node counts as ready: its taints say when it is not."""
    meta = node.metadata
    return nodes.Node(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations={k: v for k, v in meta.annotations.items() if _PROTOCOL in k},
        taints=tuple(
            nodes.Taint(t.key, t.value, t.effect) for t in node.spec.taints[:_MOST_TAINTS]
        ),
        unschedulable=node.spec.unschedulable,
        ready=all(c.status == "True" for c in node.status.conditions if c.type == READY),
        allocatable={
            sys.intern(name): min(max(amount, 0), MOST_AMOUNT)
            for name, text in node.status.allocatable.items()
            if (amount := amount_of(text, name)) is not None
        },
    )


_decoder = msgspec.json.Decoder(SchedulingNode)


def read_node(text: bytes) -> nodes.Node:
    """Of the JSON of one object. Raises msgspec.ValidationError."""
    return node_of(_decoder.decode(text))
