"""PodMigrationJob: a pod that shall move to another node (docs/reference/central.md 10.12)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.reservation import ObjectReference
from koordlet.protocol.slo import Section


class Preconditions(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str | None = None
    """UID that the pod must have."""
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")
    """Version that the pod must have."""


class DeleteOptions(Section, frozen=True):
    """Options of a deletion (``DeleteOptions`` of meta/v1)."""

    kind: str = ""
    """Kind of these options."""
    api_version: str = ""
    """Group and version of these options."""
    grace_period_seconds: int | None = None
    """Seconds that the pod has to end; its own where absent."""
    preconditions: Preconditions | None = None
    """Properties that the pod must have."""
    orphan_dependents: bool | None = None
    """Leave what the pod owns; propagationPolicy says it better."""
    propagation_policy: str | None = None
    """Orphan, Background or Foreground: what becomes of objects that the pod owns."""
    dry_run: tuple[str, ...] = ()
    """All: check, and delete nothing."""
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None
    """Delete even if the API server cannot read the object; breaks clusters."""


class PreemptedPod(Section, frozen=True):
    """Room that a preempted pod gets elsewhere."""

    namespace: str = ""
    """Namespace of the reservation."""
    name: str = ""
    """Name of the reservation."""
    node_name: str = ""
    """Node of the reservation."""
    phase: str = ""
    """Phase of the reservation."""
    preempted_pod_ref: ObjectReference | None = None
    """Pod that was preempted."""
    pods_ref: tuple[ObjectReference, ...] = ()
    """Pods that use the reservation."""


class PreemptionOptions(Section, frozen=True):
    """Has no fields yet, as in the reference."""


class ReservationOptions(Section, frozen=True):
    """``reservation_ref``: written by who made or found it. ``template``: a whole Reservation,
    metadata and spec; one is made of the pod where it is absent."""

    reservation_ref: ObjectReference | None = None
    """Reservation that keeps room for the new pod; set by whoever made or found it."""
    template: dict[str, Any] | None = None
    """Reservation to make, with metadata and spec; made of the pod where absent."""
    preemption_options: PreemptionOptions | None = None
    """Options of preemption; there are none yet."""


class PodMigrationJobSpec(Section, frozen=True):
    """``ttl``: a duration, 0 or absent for none. ``mode``: the configuration's where empty."""

    pod_ref: ObjectReference | None = None
    """Pod that shall move, by namespace and name."""
    paused: bool = False
    """Nothing happens while it is true."""
    ttl: str | None = None
    """Time until the job fails; 0 or absent for none."""
    mode: Literal["", "ReservationFirst", "EvictDirectly"] = ""
    """ReservationFirst: room elsewhere first; EvictDirectly: none. Set by configuration where
    empty."""
    reservation_options: ReservationOptions | None = None
    """Room that is kept for the new pod."""
    delete_options: DeleteOptions | None = None
    """Options of the eviction or deletion."""


class PodMigrationJobStatus(Section, frozen=True):
    """``status`` is the type of the condition that changed last."""

    phase: str = ""
    """Pending, Running, Succeeded, Failed or Aborted."""
    status: str = ""
    """Type of the condition that changed last."""
    reason: str = ""
    """Cause of the last change, in one word."""
    message: str = ""
    """Cause of the last change, for people."""
    conditions: tuple[Condition, ...] = ()
    """Steps that were taken, and why the last one failed."""
    node_name: str = ""
    """Node of the pod when the job began."""
    pod_ref: ObjectReference | None = None
    """Pod that came in its place."""
    preempted_pods_ref: tuple[ObjectReference, ...] = ()
    """Pods that were preempted to make room."""
    preempted_pods_reservation: tuple[PreemptedPod, ...] = ()
    """Reservations that preempted pods got."""
