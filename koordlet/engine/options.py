"""From the configuration to what each room takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from koordlet.collectors import COLLECTORS, applications, node, pods
from koordlet.collectors.base import CollectorPart
from koordlet.config import plugins
from koordlet.config.part_tables import enabled, options_in
from koordlet.config.schema import AlarmsTable, Application, Config
from koordlet.decision.snapshot import EvictPolicy, Resources
from koordlet.decision.strategy import AnyHook, AnyStrategy
from koordlet.hooks import HOOKS
from koordlet.protocol.annotations import NodeKeys
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.resources import CPU
from koordlet.qos import STRATEGIES
from koordlet.state.applications import ApplicationSpec
from koordlet.state.node import NO_CLUSTER, ClusterNode, NodeOptions
from koordlet.state.pressure import AlarmOptions

_MEASURING = (node.COLLECTOR, pods.COLLECTOR, applications.COLLECTOR)
"""What most decisions need."""


def application_specs(config: Config) -> tuple[ApplicationSpec, ...]:
    return tuple(_application_spec(application) for application in config.applications)


def _application_spec(application: Application) -> ApplicationSpec:
    priority = application.priority
    return ApplicationSpec(
        name=application.name,
        qos=QoSClass(application.qos),
        cgroup=application.cgroup.strip("/"),
        systemd_unit=application.systemd_unit,
        priority=priority if isinstance(priority, int) else None,
        priority_class=PriorityClass(priority) if isinstance(priority, str) else None,
        resources=Resources(
            request_cpu_milli=application.request_cpu_milli,
            limit_cpu_milli=application.limit_cpu_milli,
            request_memory_bytes=application.request_memory_bytes,
            limit_memory_bytes=application.limit_memory_bytes,
        ),
    )


def node_options(
    config: Config,
    name: str,
    before: NodeKeys | None = None,
    cluster: ClusterNode = NO_CLUSTER,
) -> NodeOptions:
    """``before``: what the node's annotations said last. What the configuration says goes before
    what the cluster says."""
    node = config.node
    return NodeOptions(
        name=name,
        kubelet_reserved_milli=node.kubelet_reserved_cpu_milli or cluster.kubelet_reserved_milli,
        reserved_cpus=node.reserved_cpus,
        # docs/reference/qos.md 2.2: reserved CPUs count as a reservation of that many cores.
        annotation_reserved_milli=1000 * len(node.reserved_cpus),
        system_qos_cpus=node.system_qos_cpus,
        best_effort_on_isolated_cpus=node.best_effort_on_isolated_cpus,
        kubelet_static_policy=node.kubelet_cpu_manager_policy == "static"
        or cluster.kubelet_static_policy,
        static_cpus=cluster.static_cpus,
        annotations={**cluster.annotations, **node.annotations},
        before=before,
    )


def alarm_options(alarms: AlarmsTable) -> AlarmOptions:
    return AlarmOptions(
        psi=alarms.psi,
        throttled=alarms.throttled,
        memory=alarms.memory,
        usage=alarms.usage,
        stall_ratio=alarms.psi_stall_percent / 100,
        min_gap_s=alarms.min_interval_ms / 1000,
    )


def enabled_collectors(config: Config) -> tuple[CollectorPart[Any], ...]:
    """Ours, then those of other packages."""
    theirs = cast(tuple[CollectorPart[Any], ...], plugins.load(config.plugins).of("collectors"))
    return (*enabled(config.collectors, COLLECTORS), *theirs)


def collect_interval_s(config: Config) -> float:
    """How often what a decision needs is measured: samples may be twice as old
    (docs/reference/qos.md
    1.6)."""
    needed = (options_in(config.collectors, part) for part in _MEASURING)
    intervals = (each.interval_seconds for each in needed if each.enable)
    return max((config.daemon.tick_seconds, *intervals))


def enabled_strategies(config: Config) -> tuple[AnyStrategy, ...]:
    theirs = cast(tuple[AnyStrategy, ...], plugins.load(config.plugins).of("strategies"))
    return (*enabled(config.strategies, STRATEGIES), *theirs)


def evict_policies(config: Config) -> dict[str, EvictPolicy]:
    """By name of the application, of those that may be evicted at all."""
    return {
        application.name: EvictPolicy(application.evict)
        for application in config.applications
        if application.evict != "never"
    }


def allocatable(config: Config, cluster: ClusterNode = NO_CLUSTER) -> Mapping[str, int] | None:
    """CPU in milli-cores, also of the tiers, which are written that way already."""
    amounts = config.node.allocatable
    if not amounts:
        return cluster.allocatable
    return {name: each.milli if name == CPU else each.value for name, each in amounts.items()}


def enabled_hooks(config: Config) -> tuple[AnyHook, ...]:
    theirs = cast(tuple[AnyHook, ...], plugins.load(config.plugins).of("hooks"))
    return (*enabled(config.hooks, HOOKS), *theirs)
