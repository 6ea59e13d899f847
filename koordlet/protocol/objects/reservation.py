"""Reservation: room on a node that is kept for pods still to come
(docs/reference/central.md 7.1)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    kind: str = ""
    """Kind of the object."""
    namespace: str = ""
    """Namespace of the object."""
    name: str = ""
    """Name of the object."""
    uid: str = ""
    """UID of the object."""
    api_version: str = msgspec.field(default="", name="apiVersion")
    """Group and version of the object."""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    """Version of the object that is meant."""
    field_path: str = msgspec.field(default="", name="fieldPath")
    """Part of the object that is meant."""


class ControllerReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an owner reference of the pod must be; what it does not say counts for nothing."""

    namespace: str = ""
    """Namespace of the owner."""
    kind: str = ""
    """Kind of the owner."""
    name: str = ""
    """Name of the owner."""
    uid: str = ""
    """UID of the owner."""
    api_version: str = msgspec.field(default="", name="apiVersion")
    """Group and version of the owner."""
    controller: bool | None = None
    """True of the owner that manages the pod."""
    block_owner_deletion: bool | None = msgspec.field(default=None, name="blockOwnerDeletion")
    """True of an owner that waits for the pod when it is deleted."""


class ReservationOwner(Section, frozen=True):
    """All that it says must hold of a pod."""

    object: ObjectReference | None = None
    """Pod that may use it."""
    controller: ControllerReference | None = None
    """Owner whose pods may use it."""
    label_selector: LabelSelector | None = None
    """Labels of the pods that may use it."""


class ReservationTaint(Section, frozen=True):
    key: str
    """Name of the taint."""
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute; the last evicts nobody here."""
    value: str = ""
    """Value of the taint."""
    time_added: InstantText | None = None
    """Time at which the taint was added."""


class PreAllocationPolicy(Section, frozen=True):
    mode: Literal["", "Default", "Cluster"] = ""
    """Pods whose room may be taken: Default, those that owners selects; Cluster, those that the
    scheduler is configured for."""
    enable_multiple: bool = False
    """Take the room of several pods where one has too little."""


class ReservationSpec(Section, frozen=True):
    """``ttl``: 24h where it is absent, 0 for ever; ``expires`` counts before it."""

    template: dict[str, Any]
    """Pod template that says what is reserved."""
    owners: tuple[ReservationOwner, ...]
    """Pods that may use it: those that any of these selects."""
    ttl: str | None = None
    """Time from creation until the reservation expires; 0 for never."""
    expires: InstantText | None = None
    """Instant at which the reservation expires; counts before ttl."""
    pre_allocation: bool = False
    """Reserve room that running pods still use; it is available when they have gone."""
    pre_allocation_policy: PreAllocationPolicy | None = None
    """Choice of the running pods whose room is taken."""
    allocate_once: bool | None = None
    """Serve one pod; what it leaves is free again for everybody."""
    allocate_policy: Literal["", "Aligned", "Restricted"] = ""
    """Aligned: a pod that needs more gets the rest from the node. Restricted: it gets reserved
    resources from the reservation alone."""
    unschedulable: bool = False
    """Take no new pods."""
    taints: tuple[ReservationTaint, ...] = ()
    """Taints that pods must tolerate to use it."""


class ReservationStatus(Section, frozen=True):
    phase: str = ""
    """Pending, Available, Succeeded, Waiting or Failed."""
    conditions: tuple[Condition, ...] = ()
    """Steps that were taken, and why the last one failed."""
    current_owners: tuple[ObjectReference, ...] = ()
    """Pods that use it."""
    node_name: str = ""
    """Node of the reserved room."""
    allocatable: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Room that was reserved."""
    allocated: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Room that pods use."""
