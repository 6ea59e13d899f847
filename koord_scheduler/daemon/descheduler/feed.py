"""The descheduler's world, from watches: nodes, pods, reports, workloads, jobs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koord_scheduler.balance.eviction_filter import Migrating, migrating_of
from koord_scheduler.balance.job import PENDING, Job
from koord_scheduler.balance.world import NodeUsage, Resident, World
from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.descheduler.workloads import Workloads
from koord_scheduler.kube.migration_shapes import (
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from koord_scheduler.kube.residents import PODS, ResidentPod
from koord_scheduler.kube.scheduling.shapes import NODES
from koord_scheduler.kube.shapes import NODE_METRICS, NodeMetric
from koord_scheduler.model.amounts import Text, measured
from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.reading import instant_s
from koordlet.kube.mirror import Change
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.resources import CPU, MEMORY


class _Resources(msgspec.Struct, frozen=True):
    resources: dict[str, Text] = {}


class _PodUsage(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    pod_usage: _Resources = _Resources()


class _NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    node_usage: _Resources = _Resources()
    system_usage: _Resources = _Resources()


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    update_time: str | None = None
    node_metric: _NodeUsage | None = None
    pods_metric: tuple[_PodUsage, ...] | None = ()


class Feed:
    """``world()`` is one frozen instant; what it shares with later ones nobody changes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        of = context.watches.of
        self._nodes = of(NODES)
        self._pods = of(PODS)
        self._metrics = of(NODE_METRICS, optional=True)
        self._metrics.listen(self._on_metrics)
        self.jobs = of(JOBS)
        sets, deployments = of(REPLICA_SETS), of(DEPLOYMENTS)
        stateful = of(STATEFUL_SETS, optional=True)
        self.workloads = Workloads(
            lambda: sets.objects,
            lambda: deployments.objects,
            lambda: stateful.objects,
            context.clock,
        )
        sets.listen(lambda _: self.workloads.forget())
        self._by_node: dict[str, dict[str, Resident]] = {}
        self._tuples: dict[str, tuple[Resident, ...]] = {}
        self._by_key: dict[str, Resident] = {}
        self._controlled: dict[str, dict[str, Resident]] = {}
        self._of_controllers: dict[str, tuple[Resident, ...]] = {}
        self._usage: dict[str, tuple[NodeMetric, NodeUsage | None]] = {}
        self._known: dict[str, Migrating] = {}
        self._arrivals = Arrivals()
        self.passed: set[str] = set()
        """By uid: jobs that this process lets pass. The watch may not have told of it yet."""
        self._pods.listen(self._on_pods)

    def world(self) -> World:
        return World(
            now_s=self._context.wall(),
            nodes={key.name: each.node for key, each in self._nodes.objects.items()},
            residents=dict(self._tuples),
            usage={
                key.name: usage
                for key, each in self._metrics.objects.items()
                if (usage := self._report(key.name, each)) is not None
            },
            workload=self.workloads.find,
            keyed=dict(self._by_key),
            controlled=dict(self._of_controllers),
        )

    async def look_up(self) -> None:
        await self.workloads.look_up(self._context.client)

    def all_jobs(self) -> list[Job]:
        return [each.job for each in self.jobs.objects.values()]

    def migrating(self, jobs: Iterable[Job], world: World, *, passed: bool) -> list[Migrating]:
        """Pods of jobs that are not done. ``passed``: of Pending ones, those that arbitration has
        let pass. A pod that is gone counts as it was last seen, by us or by who let its job pass.
        """
        found, known = [], {}
        for job in jobs:
            if job.ended:
                continue
            resident = world.by_key.get(job.pod_key)
            if resident is not None and (not job.pod_uid or resident.pod.uid == job.pod_uid):
                known[job.name] = migrating_of(job.name, resident)
            elif job.name in self._known:
                known[job.name] = self._known[job.name]
            else:
                known[job.name] = _as_it_left(job)
            if job.phase != PENDING or job.passed or job.uid in self.passed or not passed:
                found.append(known[job.name])
        self._known = known
        return found

    def _on_pods(self, changes: tuple[Change[ResidentPod], ...]) -> None:
        nodes, controllers = set(), set()
        for change in changes:
            key = f"{change.key.namespace}/{change.key.name}"
            if change.old is not None:
                pod = change.old.pod
                self._by_node.get(pod.node, {}).pop(key, None)
                self._controlled.get(pod.owner.uid, {}).pop(key, None)
                self._by_key.pop(key, None)
                nodes.add(pod.node)
                controllers.add(pod.owner.uid)
            if change.new is not None:
                resident = self._by_key[key] = change.new.resident
                pod = resident.pod
                self._by_node.setdefault(pod.node, {})[key] = resident
                nodes.add(pod.node)
                if pod.owner.uid:
                    self._controlled.setdefault(pod.owner.uid, {})[key] = resident
                    controllers.add(pod.owner.uid)
        _freeze(nodes, self._by_node, self._tuples)
        _freeze(controllers, self._controlled, self._of_controllers)

    def _on_metrics(self, changes: tuple[Change[NodeMetric], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._usage.pop(change.key.name, None)
                self._arrivals.forget(change.key.name)

    def _report(self, name: str, each: NodeMetric) -> NodeUsage | None:
        kept = self._usage.get(name)
        if kept is None or kept[0] is not each:
            usage = usage_of(each)
            if usage is not None:
                at_s = self._arrivals.at(name, usage.updated_s, self._context.wall())
                usage = msgspec.structs.replace(usage, updated_s=at_s or 0.0)
            kept = self._usage[name] = (each, usage)
        return kept[1]


def _freeze(
    touched: set[str],
    kept: dict[str, dict[str, Resident]],
    frozen: dict[str, tuple[Resident, ...]],
) -> None:
    """What a world has nobody changes."""
    for name in touched:
        if residents := kept.get(name):
            frozen[name] = tuple(residents.values())
        else:
            kept.pop(name, None)
            frozen.pop(name, None)


def _as_it_left(job: Job) -> Migrating:
    """Of a pod that is gone."""
    node, _, controller = job.left
    space = job.pod_key.partition("/")[0]
    return Migrating(job.name, job.pod_key, job.pod_uid, node, space, controller)


def usage_of(each: NodeMetric) -> NodeUsage | None:
    try:
        report = msgspec.json.decode(each.status, type=_Report) if each.status else None
    except UNREADABLE:
        return None
    if report is None or report.node_metric is None:
        return None
    whole = measured(report.node_metric.node_usage.resources, CPU, MEMORY)
    system = report.node_metric.system_usage.resources
    outside = measured(system) if system else {}
    if whole is None or outside is None:
        return None
    pods = {
        f"{each.namespace}/{each.name}": usage
        for each in report.pods_metric or ()
        if (usage := measured(each.pod_usage.resources)) is not None
    }
    return NodeUsage(instant_s(report.update_time) or 0.0, outside, pods)
