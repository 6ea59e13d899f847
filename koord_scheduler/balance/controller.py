"""MigrationController as filter and evictor
(docs/reference/central.md 10.8 to 10.10), and DefaultEvictor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koord_scheduler.balance import eviction_filter
from koord_scheduler.balance.eviction_filter import Migrating, Migrations, migrating_of
from koord_scheduler.balance.fit import fits_another
from koord_scheduler.balance.migration_args import (
    EVICT_DIRECTLY,
    NAME,
    MigrationArgs,
    PriorityThreshold,
    check_threshold,
    read_migration_args,
)
from koord_scheduler.balance.rates import ObjectLimiters
from koord_scheduler.balance.selecting import (
    Namespaces,
    check_namespaces,
    check_selector,
    read_selector,
)
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.arguments import Args, read_args
from koordlet.protocol.selector import LabelSelector, matches

DEFAULT_EVICTOR = "DefaultEvictor"


class MigrationController:
    """``jobs``: what the API server has, told before each round (`saw`); what this round asks for
    counts besides. ``limiters`` also count for jobs that run."""

    name = NAME

    def __init__(self, args: MigrationArgs) -> None:
        self.args = args
        self.dry_run = args.dry_run
        self.limiters = ObjectLimiters(args)
        self._jobs = Migrations()

    @property
    def reserves(self) -> bool:
        return self.args.default_job_mode != EVICT_DIRECTLY

    def saw(self, jobs: Iterable[Migrating]) -> None:
        self._jobs = Migrations(jobs)

    def refusal(self, world: World, resident: Resident) -> str | None:
        return eviction_filter.refusal(self.args, world, resident, self._jobs)

    def before(self, world: World, resident: Resident) -> str | None:
        return eviction_filter.before(self.args, world, resident)

    def admit(self, world: World, resident: Resident) -> str | None:
        if self.dry_run:
            return None
        why = self.refusal(world, resident) or self.limiters.refusal(world, resident)
        if why is None:
            self._jobs.add(migrating_of("", resident))
        return why


def make_controller(args: Mapping[str, Any]) -> MigrationController:
    return MigrationController(read_migration_args(args))


class DefaultEvictorArgs(Args, frozen=True):
    """Upstream's, as far as koord-descheduler hands them on."""

    node_selector: str = ""
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    evict_failed_bare_pods: bool = False
    label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: int = 0
    namespaces: Namespaces | None = None


class DefaultEvictor:
    """Evicts through the eviction API, without a job."""

    name = DEFAULT_EVICTOR
    dry_run = False
    reserves = False

    def __init__(self, args: DefaultEvictorArgs) -> None:
        self._args = args
        self._nodes = read_selector(DEFAULT_EVICTOR, "nodeSelector", args.node_selector)
        # The same questions as of a migration, without limits of migrations.
        self._as_migration = MigrationArgs(
            evict_failed_bare_pods=args.evict_failed_bare_pods,
            evict_local_storage_pods=args.evict_local_storage_pods,
            evict_system_critical_pods=args.evict_system_critical_pods,
            ignore_pvc_pods=args.ignore_pvc_pods,
            priority_threshold=args.priority_threshold,
            namespaces=args.namespaces,
            skip_check_expected_replicas=True,
        )

    def refusal(self, world: World, resident: Resident) -> str | None:
        args = self._args
        if resident.details.evict_anyway:
            return None
        daemon = resident.pod.cls.daemon and args.evict_daemon_set_pods
        if not daemon:
            why = eviction_filter.non_retryable(self._as_migration, world, resident)
            if why is not None:
                return why
        if args.label_selector is not None and not matches(
            args.label_selector, resident.pod.labels
        ):
            return "labels do not match labelSelector"
        if args.min_replicas > 1 and resident.pod.owner.uid:
            count = len(world.by_controller.get(resident.pod.owner.uid, ()))
            if count < args.min_replicas:
                return f"its controller has {count} pods, fewer than minReplicas"
        return None

    def before(self, world: World, resident: Resident) -> str | None:
        if self._args.node_fit and not fits_another(world, resident, self._nodes):
            return "the pod fits no other node"
        return None

    def admit(self, world: World, resident: Resident) -> str | None:
        return self.refusal(world, resident)


def make_default(args: Mapping[str, Any]) -> DefaultEvictor:
    """Raises ArgumentError."""
    found = read_args(DEFAULT_EVICTOR, DefaultEvictorArgs, args)
    check_namespaces(DEFAULT_EVICTOR, "namespaces", found.namespaces)
    check_selector(DEFAULT_EVICTOR, "labelSelector", found.label_selector)
    check_threshold(DEFAULT_EVICTOR, found.priority_threshold)
    return DefaultEvictor(found)
