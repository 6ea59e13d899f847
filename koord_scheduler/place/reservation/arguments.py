"""Arguments of Reservation."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Args

NAME = "Reservation"


class PreAllocationConfig(msgspec.Struct, frozen=True, rename="camel"):
    enable_cluster_mode: bool = False
    cluster_label_key: str = "pod.koordinator.sh/is-pre-allocatable"
    cluster_priority_annotation_key: str = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_no_pre_allocated_pods: bool = False


class ReservationArgs(Args, frozen=True, kw_only=True):
    """``min_candidate_nodes...``, ``controller_workers`` and the selector index are read and count
    for nothing: preemption has limits of its own, and all reservations are looked at."""

    enable_preemption: bool = False
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    controller_workers: int = 1
    gc_duration_seconds: int = 86_400
    gc_interval_seconds: int = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: int = 60
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    reservation_selector_index: dict[str, Any] = msgspec.field(default_factory=dict)
