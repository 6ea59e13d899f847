"""Arguments of MigrationController, and limits that grow with a workload
(docs/reference/central.md 10.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from koord_scheduler.balance.selecting import (
    Namespaces,
    check_namespaces,
    check_selector,
    duration_s,
    read_selector,
)
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koordlet.protocol.selector import LabelSelector

NAME = "MigrationController"
RESERVATION_FIRST, EVICT_DIRECTLY = "ReservationFirst", "EvictDirectly"
IntOrPercent = int | str
Mode = Literal["ReservationFirst", "EvictDirectly"]
Policy = Literal["Eviction", "Delete", "SoftEviction"]
POLICIES = get_args(Policy)
Gate = Literal[
    "MaxUnavailablePerWorkload",
    "MaxMigratingPerWorkload",
    "MaxMigratingPerNode",
    "MaxMigratingPerNamespace",
    "MaxMigratingGlobally",
    "ExpectedReplicas",
    "PVC",
    "BarePods",
    "LocalStorage",
    "SystemCritical",
    "PriorityThreshold",
    "LabelSelector",
    "Namespaces",
    "NodeFit",
]


class PriorityThreshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of both."""

    value: int | None = None
    name: str = ""


class ObjectLimiter(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    duration: str = "0s"
    max_migrating: IntOrPercent | None = None
    burst: int = 0


class ArbitrationArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True
    interval: str = "500ms"


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an eviction or a deletion takes of ``metav1.DeleteOptions``."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    dry_run: tuple[str, ...] = ()


class MigrationArgs(Args, frozen=True):
    """``evict_qps`` and what else the reference writes in capitals has its names."""

    dry_run: bool = False
    max_concurrent_reconciles: int = 1
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    node_fit: bool = False
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: Namespaces | None = None
    node_selector: str = ""
    max_migrating_globally: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_namespace: int | None = None
    max_migrating_per_workload: IntOrPercent | None = None
    max_unavailable_per_workload: IntOrPercent | None = None
    skip_check_expected_replicas: bool = False
    object_limiters: dict[str, ObjectLimiter] = msgspec.field(
        default_factory=lambda: {"workload": ObjectLimiter("5m")}
    )
    default_job_mode: Mode = "ReservationFirst"
    default_job_ttl: str = msgspec.field(default="5m", name="defaultJobTTL")
    scheduler_names: tuple[str, ...] = ("koord-scheduler",)
    evict_qps: float | str = msgspec.field(default=10, name="evictQPS")
    evict_burst: int = 1
    eviction_policy: Policy = "Eviction"
    default_delete_options: DeleteOptions | None = None
    arbitration_args: ArbitrationArgs = ArbitrationArgs()
    skip_eviction_gates: tuple[Gate, ...] = ()

    @property
    def nodes(self) -> LabelSelector | None:
        """Those of ``nodeSelector``, on which a pod must fit where ``nodeFit`` is on."""
        return read_selector(NAME, "nodeSelector", self.node_selector)

    @property
    def job_ttl_s(self) -> float:
        return duration_s(NAME, "defaultJobTTL", self.default_job_ttl)

    @property
    def arbitration_s(self) -> float:
        return duration_s(NAME, "arbitrationArgs.interval", self.arbitration_args.interval)

    @property
    def evictions_per_s(self) -> float:
        return float(self.evict_qps)


def read_migration_args(args: Mapping[str, Any]) -> MigrationArgs:
    """Raises ArgumentError."""
    found = read_args(NAME, MigrationArgs, args)
    check_namespaces(NAME, "namespaces", found.namespaces)
    try:
        rate = float(found.evict_qps)
    except ValueError:
        rate = 0.0
    if not rate > 0 or found.evict_burst <= 0:
        raise ArgumentError(f"{NAME}: evictQPS and evictBurst must be more than 0")
    check_selector(NAME, "labelSelector", found.label_selector)
    check_range(NAME, "maxConcurrentReconciles", found.max_concurrent_reconciles, 1, None)
    for where, limit in (
        ("maxMigratingGlobally", found.max_migrating_globally),
        ("maxMigratingPerNode", found.max_migrating_per_node),
        ("maxMigratingPerNamespace", found.max_migrating_per_namespace),
    ):
        check_range(NAME, where, limit or 0, 0, None)
    for name in ("max_migrating_per_workload", "max_unavailable_per_workload"):
        limit_of(10, getattr(found, name), name)
    for key, each in found.object_limiters.items():
        if key not in ("workload", "namespace"):
            raise ArgumentError(
                f"{NAME}: objectLimiters: {key!r} is neither workload nor namespace"
            )
        duration_s(NAME, f"objectLimiters.{key}.duration", each.duration)
        limit_of(10, each.max_migrating, f"objectLimiters.{key}.maxMigrating")
    check_threshold(NAME, found.priority_threshold)
    if found.arbitration_s <= 0:
        raise ArgumentError(f"{NAME}: arbitrationArgs.interval: must be more than 0")
    _ = found.job_ttl_s, found.nodes
    return found


def check_threshold(plugin: str, threshold: PriorityThreshold | None) -> None:
    """Raises ArgumentError."""
    if threshold is not None and threshold.value is not None and threshold.name:
        raise ArgumentError(f"{plugin}: priorityThreshold: give value or name, not both")


def limit_of(replicas: int, value: IntOrPercent | None, where: str = "") -> int:
    """How many pods of a workload may be away (10.7). Raises ArgumentError for a text that is no
    percentage."""
    if value is None:
        small = 2 if replicas >= 4 else 1
        found = replicas // 10 if replicas > 10 else small
    else:
        found = max(_amount(replicas, value, where), 1)
    return min(found, replicas)


def number_of(value: IntOrPercent | None) -> int:
    """A namespace has no size: percentages count as 0 there."""
    return value if isinstance(value, int) else 0


def _amount(replicas: int, value: IntOrPercent, where: str) -> int:
    if isinstance(value, int):
        if value < 0:
            raise ArgumentError(f"{NAME}: {where}: must be at least 0")
        return value
    digits = value.removesuffix("%")
    if digits == value or not digits.isascii() or not digits.isdecimal() or len(digits) > 6:
        raise ArgumentError(f"{NAME}: {where}: {value[:40]!r} is no number and no percentage")
    return replicas * int(digits) // 100
