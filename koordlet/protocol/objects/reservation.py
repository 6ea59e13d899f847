"""Reservation: room on a node that is kept for pods still to come
(docs/reference/central.md 7.1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    field_path: str = msgspec.field(default="", name="fieldPath")


class ControllerReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an owner reference of the pod must be; what it does not say counts for nothing."""

    namespace: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    controller: bool | None = None
    block_owner_deletion: bool | None = msgspec.field(default=None, name="blockOwnerDeletion")


class ReservationOwner(Section, frozen=True):
    """All that it says must hold of a pod."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class ReservationTaint(Section, frozen=True):
    key: str
    effect: str
    value: str = ""
    time_added: InstantText | None = None


class PreAllocationPolicy(Section, frozen=True):
    mode: Literal["", "Default", "Cluster"] = ""
    enable_multiple: bool = False


class ReservationSpec(Section, frozen=True):
    """``ttl``: 24h where it is absent, 0 for ever; ``expires`` counts before it."""

    template: Annotated[
        dict[str, Any], Meta(description="The pod template that says what is reserved.")
    ]
    owners: Annotated[
        tuple[ReservationOwner, ...], Meta(description="Whose pods may use it: any of these.")
    ]
    ttl: str | None = None
    expires: InstantText | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: bool | None = None
    allocate_policy: Literal["", "Aligned", "Restricted"] = ""
    unschedulable: bool = False
    taints: tuple[ReservationTaint, ...] = ()


class ReservationStatus(Section, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    current_owners: tuple[ObjectReference, ...] = ()
    node_name: str = ""
    allocatable: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    allocated: dict[str, QuantityText] = msgspec.field(default_factory=dict)
