"""Arguments of Reservation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koordlet.protocol.selector import is_label_name, is_subdomain

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


def reservation_args(args: Mapping[str, Any]) -> ReservationArgs:
    """Raises ArgumentError."""
    found = read_args(NAME, ReservationArgs, args)
    for where, value, most in (
        ("minCandidateNodesPercentage", found.min_candidate_nodes_percentage, 100),
        ("minCandidateNodesAbsolute", found.min_candidate_nodes_absolute, None),
        ("gcDurationSeconds", found.gc_duration_seconds, None),
        ("gcIntervalSeconds", found.gc_interval_seconds, None),
        ("resyncIntervalSeconds", found.resync_interval_seconds, None),
    ):
        check_range(NAME, where, value, 0, most)
    for i, name in enumerate(found.ignored_resources):
        if not (is_label_name(name) and _is_extended(name.partition("/")[0])) or "/" not in name:
            text = f"{NAME}: ignoredResources[{i}]: {name[:64]!r} is no extended resource"
            raise ArgumentError(f"{text} such as example.com/gpu; others cannot be ignored")
    for i, group in enumerate(found.ignored_resource_groups):
        if not _is_extended(group):
            text = f"{NAME}: ignoredResourceGroups[{i}]: {group[:64]!r} is no group"
            raise ArgumentError(f"{text} of extended resources such as example.com")
    return found


def _is_extended(group: str) -> bool:
    return is_subdomain(group) and not (
        group.endswith("kubernetes.io") or group.startswith("requests.")
    )
