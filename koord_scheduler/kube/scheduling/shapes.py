"""Pods and nodes with all that decides about places; the manager's parts read the same objects.

A pod on a node keeps its class, which all pods of its workload share, and little else: a cluster
has 140,000 of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.kube import shapes
from koord_scheduler.model import node_reading, pod_reading, pod_terms, pod_wire
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import NodeTerm, Pod, PodClass
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.selector import LabelSelector

_NO_CLASS = PodClass(number=0, namespace="")
NO_POD = Pod(key="", uid="", cls=_NO_CLASS)
NO_NODE = Node(name="")
PENDING = ""
_DONE = frozenset({"Succeeded", "Failed"})


class PodMetadata(shapes.PodMetadata, frozen=True, gc=False):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PodSpec(pod_wire.PodSpec, frozen=True, gc=False):
    priority_class_name: str = ""


class PodCondition(pod_wire.Condition, frozen=True, gc=False):
    message: str = ""


class PodStatus(pod_wire.PodStatus, frozen=True, gc=False):
    conditions: tuple[PodCondition, ...] = ()
    reason: str = ""


class Whole(msgspec.Struct, frozen=True, gc=False):
    """What a pod that waits says about its place, to be read again when a volume of it changes.
    ``said``: reason and message of the condition PodScheduled."""

    metadata: pod_wire.PodMetadata
    spec: pod_wire.PodSpec
    status: pod_wire.PodStatus
    said: tuple[str, str] = ("", "")


class Volumes:
    """What is known of PersistentVolumeClaims now; `VolumeFeed` fills it."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], pod_reading.Volume] = {}

    def of(self, namespace: str, name: str) -> pod_reading.Volume:
        found = self.known.get((namespace, name))
        return found or pod_reading.Volume(f"volume claim {name}: it does not exist")


VOLUMES = Volumes()
CLASSES = pod_reading.Classes()
"""Of the process, as what other shapes share."""


class ScheduledPod(shapes.Pod, frozen=True, gc=False):
    """``pod`` and ``refusal`` are made of the rest and stand on no wire. ``refusal``: the reason of
    a pod that failed. ``whole`` None: it has a node."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()  # type: ignore[assignment]
    status: PodStatus = PodStatus()  # type: ignore[assignment]
    pod: Pod = NO_POD
    refusal: str = ""
    whole: Whole | None = None

    @property
    def full_name(self) -> str:
        return self.pod.key

    def __post_init__(self) -> None:
        meta, spec, status = self.metadata, self.spec, self.status
        made = pod_reading.pod_of(cast(pod_wire.SchedulingPod, self), CLASSES, VOLUMES.of)
        if status.phase == "Failed":
            force_setattr(self, "refusal", status.reason)
        if not made.node and made.phase not in _DONE:
            force_setattr(self, "whole", _whole(meta, spec, status))
        force_setattr(
            self,
            "metadata",
            shapes.PodMetadata(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                labels=meta.labels,
                annotations=meta.annotations,
                owner_references=meta.owner_references,
            ),
        )
        super().__post_init__()
        force_setattr(made, "key", self.facts.key)
        force_setattr(made, "labels", self.metadata.labels)
        force_setattr(made, "annotations", self.metadata.annotations)
        force_setattr(made, "owner", shapes.once(made.owner))
        force_setattr(self, "pod", made)

    def lean(self) -> ScheduledPod | Pod:
        """Of a pod on a node `Pod` says all, but for owners of members of a gang."""
        pod = self.pod
        return self if self.whole is not None or self.refusal or pod.gang else pod


class Placed(NamedTuple):
    """What `ScheduledPod` would say of a pod of which `ScheduledPod.lean` left the `Pod`."""

    pod: Pod
    refusal: str = ""
    whole: Whole | None = None


def seen(item: ScheduledPod | Pod) -> ScheduledPod | Placed:
    """Of a lean watch."""
    return Placed(item) if isinstance(item, Pod) else item


def again(item: ScheduledPod | Placed) -> Pod | None:
    """The pod as its volumes make it now; None where it has a node."""
    if item.whole is None:
        return None
    return pod_reading.pod_of(cast(pod_wire.SchedulingPod, item.whole), CLASSES, VOLUMES.of)


def _whole(meta: PodMetadata, spec: PodSpec, status: PodStatus) -> Whole:
    said = next(
        ((c.reason, c.message) for c in status.conditions if c.type == "PodScheduled"), ("", "")
    )
    return Whole(cast(pod_wire.PodMetadata, meta), spec, status, said)


class NodeSpec(shapes.NodeSpec, frozen=True):
    taints: tuple[node_reading.Taint, ...] = ()


class ScheduledNode(shapes.Node, frozen=True):
    """``node`` is made of the rest and stands on no wire."""

    spec: NodeSpec = NodeSpec()
    node: Node = NO_NODE

    def __post_init__(self) -> None:
        made = node_reading.node_of(cast(node_reading.SchedulingNode, self))
        super().__post_init__()
        made = msgspec.structs.replace(
            made, labels=self.metadata.labels, annotations=self.metadata.annotations
        )
        force_setattr(self, "node", made)

    def lean(self) -> Node:
        return self.node


def node_of(item: ScheduledNode | Node | None) -> Node | None:
    """Of a lean watch."""
    return item.node if isinstance(item, ScheduledNode) else item


class BudgetSpec(Shape, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(Shape, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = msgspec.field(default_factory=dict)


class DisruptionBudget(Object, frozen=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ClaimSpec(Shape, frozen=True):
    volume_name: str = ""


class ClaimStatus(Shape, frozen=True):
    phase: str = ""


class VolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeAffinity(Shape, frozen=True):
    required: pod_wire.Terms | None = None


class VolumeSpec(Shape, frozen=True):
    node_affinity: VolumeAffinity | None = None


class Volume(Object, frozen=True):
    """A PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()


def volume_of(claim: VolumeClaim, volume: Volume | None) -> pod_reading.Volume:
    """What a claim means for the place of its pods. One that is bound to no volume yet refuses
    them: whoever would bind it waits for a node, and which nodes it could serve is not known."""
    name = claim.metadata.name
    if claim.status.phase != "Bound" or not claim.spec.volume_name:
        return pod_reading.Volume(f"volume claim {name}: it is bound to no volume yet")
    if volume is None:
        return pod_reading.Volume(f"volume claim {name}: its volume does not exist")
    affinity = volume.spec.node_affinity
    terms: tuple[NodeTerm, ...] = ()
    if affinity is not None and affinity.required is not None:
        terms = pod_terms.node_terms(affinity.required) or ()
    return pod_reading.Volume(terms=terms)


PODS = Kind("", "v1", "Pod", "pods", True, ScheduledPod)
NODES = Kind("", "v1", "Node", "nodes", False, ScheduledNode)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
BUDGETS = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, DisruptionBudget
)
CLAIMS = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, VolumeClaim)
VOLUME_KIND = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, Volume)
