"""Pods by class: whatever decides where a pod may go, once for all pods that have it alike.

CPU is in milli-cores, everything else in whole units (docs/reference/central.md 0.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.selector import LabelSelector


class NodeRequirement(NamedTuple):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt or Lt. ``field``: ``key`` is
    ``metadata.name`` and not a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False


NodeTerm = tuple[NodeRequirement, ...]
"""All must hold. A term without requirements matches no node, as in Kubernetes."""


class PreferredNodes(NamedTuple):
    weight: int
    term: NodeTerm


class Toleration(NamedTuple):
    """Empty ``key`` with Exists tolerates everything; empty ``effect`` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(NamedTuple):
    """``hard``: DoNotSchedule. ``selector`` has the pod's values of matchLabelKeys in it."""

    topology_key: str
    max_skew: int
    hard: bool
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class PodTerm(NamedTuple):
    """``namespaces`` is complete but for ``namespace_selector``, which only who knows labels of
    namespaces can resolve; None: no such selector."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelSelector | None = None
    weight: int = 0


class HostPort(NamedTuple):
    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"


class Owner(NamedTuple):
    """An owner of a pod."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = True


class Named(NamedTuple):
    """The name and the uid of a pod that some reservation means as an object."""

    name: str = ""
    uid: str = ""


class PodClass(msgspec.Struct, frozen=True, eq=False, weakref=True, kw_only=True):
    """Interned: two pods are of the same class where they share the object (`pod_reading`).

    ``labels`` lacks those that differ from pod to pod of one workload (``UNIQUE_LABELS``);
    ``annotations`` are the protocol's that decide about placement, as text. ``requests`` and
    ``limits`` are those of the pod as Kubernetes counts them, with ``overhead``, without ``pods``.
    ``owners``: by which a reservation may know its pods; ``named``: where a reservation names this
    one pod. ``unsupported``: reasons, in words,
    why this scheduler refuses such pods. ``priority_class`` and
    ``qos`` are those with default (docs/reference/protocol.md 1.1, 1.2).
    """

    number: int
    namespace: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    requests: Mapping[str, int] = {}
    limits: Mapping[str, int] = {}
    overhead: Mapping[str, int] = {}
    priority: int = 0
    priority_class: PriorityClass | None = None
    qos: QoSClass = QoSClass.LS
    kube_qos: str = "Burstable"
    preempts: bool = True
    daemon: bool = False
    owners: tuple[Owner, ...] = ()
    named: Named = Named()
    node_selector: Mapping[str, str] = {}
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[PodTerm, ...] = ()
    preferred_anti_affinity: tuple[PodTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    unsupported: tuple[str, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod, or the reserve pod of a Reservation (``holds`` is that Reservation's name then).

    ``labels`` and ``annotations`` are complete but for annotations that are not the protocol's.
    ``gang`` is ``namespace/name``, empty without one; ``index``: its place within the gang.
    ``annotation_bytes``: of all annotations, kept or not, while it has no node.
    ``gates``: names of scheduling gates that are still there. ``nominated``: a node on which room
    was made for it, or to which it is about to be bound; ``refused``: it was told before that it
    fits nowhere. ``scheduled_s``, ``initialized_s``: Unix times of these conditions.
    """

    key: str
    uid: str
    cls: PodClass
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    annotation_bytes: int = 0
    created_s: float = 0.0
    owner: Owner = Owner()
    scheduler: str = ""
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    terminating: bool = False
    gates: tuple[str, ...] = ()
    nominated: str = ""
    refused: bool = False
    gang: str = ""
    index: int = 0
    holds: str = ""
    scheduled_s: float = 0.0
    initialized_s: float = 0.0


OPERATING_MODE = "scheduling.koordinator.sh/operating-mode"
AS_RESERVATION = "Reservation"
"""The value of the label of a pod that is a reservation: it keeps what it has for its owners."""
NO_GRANTS: Mapping[str, Any] = {}
"""Shared by all claims without one. Nobody may write to it."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a pod takes of a node. ``since_s``: when it got the node (Unix time).

    ``grants``: what allocators gave it, by the name of their plugin, in their own types. A pod that
    uses a reservation has its uid in ``reservation`` (another may come by the same name); the
    reserve pod of that reservation then counts with what is left (`Cluster`)."""

    pod: Pod
    node: str
    since_s: float = 0.0
    grants: Mapping[str, Any] = msgspec.field(default_factory=lambda: NO_GRANTS)
    reservation: str = ""

    @property
    def holds(self) -> str:
        """Uid of the reservation of which this claim is the room; empty for any other pod."""
        pod = self.pod
        return pod.uid if pod.holds or pod.labels.get(OPERATING_MODE) == AS_RESERVATION else ""
