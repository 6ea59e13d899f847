"""From the configuration to what each room takes. Pure."""

from __future__ import annotations

from koordlet.config.schema import AlarmsTable, Application, Config
from koordlet.config.strategies import EvictTable
from koordlet.decision.snapshot import EvictPolicy, Resources
from koordlet.decision.strategy import Hook, Strategy
from koordlet.hooks import HookOptions, hooks
from koordlet.hooks.cpu_qos import CpuQosOptions
from koordlet.hooks.cpuset import CpusetOptions
from koordlet.hooks.gpu import GpuEnvOptions
from koordlet.protocol.annotations import NodeKeys
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.resources import CPU
from koordlet.qos import STRATEGIES
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.qos.evict.round import Limits
from koordlet.state.applications import ApplicationSpec
from koordlet.state.node import NodeOptions
from koordlet.state.pressure import AlarmOptions


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


def node_options(config: Config, name: str, before: NodeKeys | None = None) -> NodeOptions:
    """``before``: what the node's annotations said last."""
    node = config.node
    return NodeOptions(
        name=name,
        kubelet_reserved_milli=node.kubelet_reserved_cpu_milli,
        reserved_cpus=node.reserved_cpus,
        # spec/qos.md 2.2: reserved CPUs count as a reservation of that many cores.
        annotation_reserved_milli=1000 * len(node.reserved_cpus),
        system_qos_cpus=node.system_qos_cpus,
        kubelet_static_policy=node.kubelet_cpu_manager_policy == "static",
        annotations=node.annotations,
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


def collector_intervals(config: Config) -> dict[str, float]:
    """Name -> seconds, of every collector that is switched on."""
    tables = {
        name: getattr(config.collectors, name) for name in config.collectors.__struct_fields__
    }
    return {name: table.interval_seconds for name, table in tables.items() if table.enable}


def collect_interval_s(config: Config) -> float:
    """How often what a decision needs is measured: samples may be twice as old (spec/qos.md
    1.6)."""
    found = collector_intervals(config)
    needed = (found.get(name, 0.0) for name in ("node", "pods", "applications"))
    return max(config.daemon.tick_seconds, *needed)


def enabled_strategies(config: Config) -> tuple[Strategy, ...]:
    tables = config.strategies
    own = {
        cpu_evict.NAME: cpu_evict.strategy(evict_limits(tables.cpu_evict)),
        memory_evict.NAME: memory_evict.strategy(evict_limits(tables.memory_evict)),
    }
    return tuple(
        own.get(name, strategy)
        for name, strategy in STRATEGIES.items()
        if getattr(tables, name.replace("-", "_")).enable
    )


def evict_limits(table: EvictTable) -> Limits:
    return Limits(table.cool_down_seconds, table.max_per_minute, table.max_grace_seconds)


def evict_policies(config: Config) -> dict[str, EvictPolicy]:
    """By name of the application, of those that may be evicted at all."""
    return {
        application.name: EvictPolicy(application.evict)
        for application in config.applications
        if application.evict != "never"
    }


def allocatable(config: Config) -> dict[str, int] | None:
    """CPU in milli-cores, also of the tiers, which are written that way already."""
    amounts = config.node.allocatable
    if not amounts:
        return None
    return {name: each.milli if name == CPU else each.value for name, each in amounts.items()}


def enabled_hooks(config: Config) -> tuple[Hook, ...]:
    tables = config.hooks
    options = HookOptions(
        cpu_qos=CpuQosOptions(
            bvt=tables.cpu_qos.bvt, idle=tables.cpu_qos.idle, weight=tables.cpu_qos.weight
        ),
        cpuset=CpusetOptions(
            unset_quota=tables.cpuset.unset_quota, be_pools=tables.cpuset.be_pools
        ),
        gpu_env=GpuEnvOptions(hami_library=tables.gpu_env.hami_library),
    )
    return tuple(
        hook for hook in hooks(options) if getattr(tables, hook.name.replace("-", "_")).enable
    )
