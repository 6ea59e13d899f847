"""Which pods may be migrated (docs/reference/central.md 10.8), as reasons why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from koord_scheduler.balance.fit import fits_another
from koord_scheduler.balance.migration_args import RESERVATION_FIRST, MigrationArgs, limit_of
from koord_scheduler.balance.selecting import namespace_allowed
from koord_scheduler.balance.world import MIRROR, SYSTEM_CRITICAL, Resident, Workload, World
from koordlet.protocol.selector import matches

_NEVER = 2**31 - 1
"""The eviction cost of a pod that must stay."""
_CRITICAL = ("system-cluster-critical", "system-node-critical")


class Migrating(NamedTuple):
    """The pod of a job that counts: Running, or Pending and passed (while jobs are arbitrated)."""

    job: str
    key: str
    uid: str
    node: str
    namespace: str
    controller: str = ""

    def is_of(self, resident: Resident) -> bool:
        return self.uid == resident.pod.uid if self.uid else self.key == resident.pod.key


def migrating_of(job: str, resident: Resident) -> Migrating:
    pod = resident.pod
    return Migrating(job, pod.key, pod.uid, pod.node, resident.namespace, pod.owner.uid)


class Migrations:
    """Pods of jobs, counted as limits ask for them: a round asks for each pod of many nodes."""

    def __init__(self, jobs: Iterable[Migrating] = ()) -> None:
        self.all: list[Migrating] = []
        self.per_node: Counter[str] = Counter()
        self.per_namespace: Counter[str] = Counter()
        self.per_controller: dict[str, list[Migrating]] = {}
        self._by_name: dict[str, list[Migrating]] = {}
        for each in jobs:
            self.add(each)

    def add(self, each: Migrating) -> None:
        self.all.append(each)
        self.per_node[each.node] += 1
        self.per_namespace[each.namespace] += 1
        self.per_controller.setdefault(each.controller, []).append(each)
        self._by_name.setdefault(each.key, []).append(each)

    def of(self, resident: Resident) -> list[Migrating]:
        """Jobs of the pod itself."""
        found = self._by_name.get(resident.pod.key, ())
        return [each for each in found if each.is_of(resident)]


def refusal(args: MigrationArgs, world: World, resident: Resident, jobs: Migrations) -> str | None:
    """All of 10.8 in order. ``jobs``: of Pending and Running ones."""
    if jobs.of(resident):
        return "a migration job for the pod exists"
    if args.default_job_mode == RESERVATION_FIRST:
        scheduler = resident.pod.scheduler
        if scheduler not in args.scheduler_names:
            return f"scheduler {scheduler or 'unknown'} knows no reservations (schedulerNames)"
    return non_retryable(args, world, resident) or retryable(args, world, resident, jobs)


def non_retryable(args: MigrationArgs, world: World, resident: Resident) -> str | None:
    """What waiting does not change."""
    if resident.details.evict_anyway:
        return None
    skipped = args.skip_eviction_gates
    checks: tuple[tuple[str, Callable[[MigrationArgs, World, Resident], str | None]], ...] = (
        ("Namespaces", _namespace),
        ("", never),
        ("BarePods", _bare),
        ("SystemCritical", _critical),
        ("PriorityThreshold", _priority),
        ("LocalStorage", _local_storage),
        ("PVC", _pvc),
        ("LabelSelector", _labels),
        ("ExpectedReplicas", _expected_replicas),
    )
    for gate, check in checks:
        if gate not in skipped:
            why = check(args, world, resident)
            if why is not None:
                return why
    return None


def retryable(
    args: MigrationArgs, world: World, resident: Resident, jobs: Migrations
) -> str | None:
    """What other jobs are in the way of."""
    if resident.details.evict_anyway:
        return None
    own = jobs.of(resident)
    skipped, node, namespace = args.skip_eviction_gates, resident.pod.node, resident.namespace
    for gate, limit, count, what in (
        (
            "MaxMigratingGlobally",
            args.max_migrating_globally,
            len(jobs.all) - len(own),
            "in the cluster",
        ),
        (
            "MaxMigratingPerNode",
            args.max_migrating_per_node,
            jobs.per_node[node] - sum(each.node == node for each in own),
            f"on node {node}",
        ),
        (
            "MaxMigratingPerNamespace",
            args.max_migrating_per_namespace,
            jobs.per_namespace[namespace] - len(own),
            f"in namespace {namespace}",
        ),
    ):
        if limit and gate not in skipped and count >= limit:
            return f"{count} pods migrate {what} already ({gate[0].lower()}{gate[1:]})"
    return _workload(args, world, resident, jobs)


def before(args: MigrationArgs, world: World, resident: Resident) -> str | None:
    """PreEvictionFilter."""
    asked = args.node_fit and "NodeFit" not in args.skip_eviction_gates
    if asked and not fits_another(world, resident, args.nodes):
        return "the pod fits no other node"
    return None


def never(_args: object, _world: World, resident: Resident) -> str | None:
    pod, details = resident.pod, resident.details
    if details.eviction_cost >= _NEVER:
        return "eviction-cost says that the pod stays"
    if pod.cls.daemon:
        return "a DaemonSet would make it anew on the same node"
    if details.static or MIRROR in pod.annotations:
        return "the pod is static"
    if pod.terminating:
        return "the pod is terminating"
    return None


def _namespace(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    if namespace_allowed(args.namespaces, resident.namespace):
        return None
    return f"namespace {resident.namespace} is excluded (namespaces)"


def _bare(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    if resident.details.owned or args.evict_all_bare_pods:
        return None
    if args.evict_failed_bare_pods and resident.pod.phase == "Failed":
        return None
    return "nobody would make the pod anew: it has no owner"


def critical(resident: Resident) -> bool:
    return (
        resident.details.priority_class_name in _CRITICAL
        or resident.pod.cls.priority >= SYSTEM_CRITICAL
    )


def _critical(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    if args.evict_system_critical_pods or not critical(resident):
        return None
    return "the pod is critical for the system"


def _priority(args: MigrationArgs, world: World, resident: Resident) -> str | None:
    threshold = args.priority_threshold
    if threshold is None or args.evict_system_critical_pods:
        return None
    value = threshold.value
    if value is None:
        value = world.priority_values.get(threshold.name)
        if value is None:
            return f"no PriorityClass is called {threshold.name!r} (priorityThreshold)"
    if resident.pod.cls.priority < value:
        return None
    return f"priority {resident.pod.cls.priority} is not below {value} (priorityThreshold)"


def _local_storage(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    if args.evict_local_storage_pods or not resident.details.local_storage:
        return None
    return "the pod has local storage"


def _pvc(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    return "the pod has a PVC" if args.ignore_pvc_pods and resident.details.pvc else None


def _labels(args: MigrationArgs, _world: World, resident: Resident) -> str | None:
    if args.label_selector is None or matches(args.label_selector, resident.pod.labels):
        return None
    return "labels do not match labelSelector"


def _expected_replicas(args: MigrationArgs, world: World, resident: Resident) -> str | None:
    if args.skip_check_expected_replicas or not resident.pod.owner.uid:
        return None
    workload = world.workload_of(resident)
    owner = resident.pod.owner
    if workload is None:
        return f"replicas of {owner.kind} {owner.name} are not known"
    if _ends_job(workload, resident, 0):
        return _no_retry(workload)
    replicas = workload.replicas
    if replicas == 1:
        return f"{workload.kind} {workload.name} has one replica"
    for value, word in (
        (args.max_migrating_per_workload, "maxMigratingPerWorkload"),
        (args.max_unavailable_per_workload, "maxUnavailablePerWorkload"),
    ):
        if limit_of(replicas, value) == replicas:
            return f"all {replicas} replicas of {workload.name} might be away ({word})"
    return None


def _workload(
    args: MigrationArgs, world: World, resident: Resident, jobs: Migrations
) -> str | None:
    if not resident.pod.owner.uid:
        return None
    workload = world.workload_of(resident)
    if workload is None:
        return f"replicas of {resident.pod.owner.kind} {resident.pod.owner.name} are not known"
    migrating = {
        each.key
        for uid in workload.members
        for each in jobs.per_controller.get(uid, ())
        if not each.is_of(resident)
    }
    skipped = args.skip_eviction_gates
    checked = not args.skip_check_expected_replicas and "ExpectedReplicas" not in skipped
    if checked and _ends_job(workload, resident, len(migrating)):
        return _no_retry(workload)
    if migrating and "MaxMigratingPerWorkload" not in skipped:
        most = limit_of(workload.replicas, args.max_migrating_per_workload)
        if len(migrating) >= most:
            return f"{len(migrating)} of {most} pods of {workload.name} migrate already"
    if "MaxUnavailablePerWorkload" not in skipped:
        most = limit_of(workload.replicas, args.max_unavailable_per_workload)
        away = migrating | world.away(workload)
        if len(away) >= most:
            return f"{len(away)} of {most} pods of {workload.name} are away already"
    return None


def _ends_job(workload: Workload, resident: Resident, others: int) -> bool:
    """A pod of a Job that is evicted counts as one that failed; one that is done costs nothing."""
    left = workload.failures_left
    return left is not None and resident.active and others >= left


def _no_retry(workload: Workload) -> str:
    return f"an eviction would fail Job {workload.name}: it has no retry left (backoffLimit)"
