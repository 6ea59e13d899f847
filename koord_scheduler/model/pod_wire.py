"""The fields of a pod that decide where it may go, as msgspec decodes them.

``PodPlacement`` is what pods of one workload have alike: encoded again it is the key of a class.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.wire import PodCondition, Resources, SizedStatus, Wire
from koordlet.protocol.selector import LabelSelector


class Resourced(Wire, frozen=True, gc=False):
    requests: Resources = msgspec.field(default_factory=dict)
    limits: Resources = msgspec.field(default_factory=dict)


class Port(Wire, frozen=True, gc=False):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Wire, frozen=True, gc=False):
    """``restart_policy`` Always makes a sidecar of an init container."""

    name: str = ""
    resources: Resourced = Resourced()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class Expression(Wire, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class Term(Wire, frozen=True, gc=False):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class Terms(Wire, frozen=True, gc=False):
    node_selector_terms: tuple[Term, ...] = ()


class PreferredTerm(Wire, frozen=True, gc=False):
    weight: int = 0
    preference: Term = Term()


class NodeAffinity(Wire, frozen=True, gc=False):
    required: Terms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(Wire, frozen=True, gc=False):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPodTerm(Wire, frozen=True, gc=False):
    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinity(Wire, frozen=True, gc=False):
    required: tuple[PodTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredPodTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire, frozen=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Spread(Wire, frozen=True, gc=False):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PodPlacement(Wire, frozen=True, gc=False):
    """``resources``: of the pod as a whole, where it has some."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Resources = msgspec.field(default_factory=dict)
    resources: Resourced = Resourced()
    priority: int | None = None
    preemption_policy: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()


class VolumeClaim(Wire, frozen=True, gc=False):
    claim_name: str = ""


class Volume(Wire, frozen=True, gc=False):
    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: dict[str, Any] | None = None


class Gate(Wire, frozen=True, gc=False):
    name: str = ""


class SchedulingGroup(Wire, frozen=True, gc=False):
    pod_group_name: str = ""


class PodSpec(PodPlacement, frozen=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[msgspec.Raw, ...] = ()
    scheduling_gates: tuple[Gate, ...] = ()
    scheduling_group: SchedulingGroup | None = None


class Condition(PodCondition, frozen=True, gc=False):
    last_transition_time: str | None = None


class PodStatus(SizedStatus, frozen=True, gc=False):
    phase: str = "Pending"
    qos_class: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class OwnerReference(Wire, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class PodMetadata(Wire, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class SchedulingPod(Wire, frozen=True, gc=False):
    """A pod as the API server sends it; `pod_reading.pod_of` makes a ``Pod`` of it."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
