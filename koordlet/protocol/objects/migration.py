"""PodMigrationJob: a pod that shall move to another node (docs/reference/central.md 10.12)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.reservation import ObjectReference
from koordlet.protocol.slo import Section


class PreemptionOptions(Section, frozen=True):
    """Has no fields yet, as in the reference."""


class ReservationOptions(Section, frozen=True):
    """``reservation_ref``: written by who made or found it. ``template``: a whole Reservation,
    metadata and spec; one is made of the pod where it is absent."""

    reservation_ref: ObjectReference | None = None
    template: dict[str, Any] | None = None
    preemption_options: PreemptionOptions | None = None


class PodMigrationJobSpec(Section, frozen=True):
    """``ttl``: a duration, 0 or absent for none. ``mode``: the configuration's where empty."""

    pod_ref: Annotated[
        ObjectReference | None, Meta(description="The pod, by namespace and name.")
    ] = None
    paused: Annotated[bool, Meta(description="Nothing happens while it is true.")] = False
    ttl: str | None = None
    mode: Literal["", "ReservationFirst", "EvictDirectly"] = ""
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class PodMigrationJobStatus(Section, frozen=True):
    """``status`` is the type of the condition that changed last."""

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    preempted_pods_ref: tuple[ObjectReference, ...] = ()
    preempted_pods_reservation: tuple[dict[str, Any], ...] = ()
