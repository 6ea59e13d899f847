"""What may burst and how far
(docs/reference/qos.md 3.1): a container of a pod, or an application on the
host."""

from __future__ import annotations

import msgspec

from koordlet.decision.family import Labels
from koordlet.decision.metrics import (
    CONTAINER_CPU_THROTTLED,
    CONTAINER_CPU_THROTTLED_TIME,
    CONTAINER_CPU_USAGE,
    HOST_APPLICATION_CPU_THROTTLED,
    HOST_APPLICATION_CPU_THROTTLED_TIME,
    HOST_APPLICATION_CPU_USAGE,
    Metric,
)
from koordlet.decision.snapshot import Application, Container, InForce, Pod
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.merge import overlay
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.slo import CPUBurstStrategy
from koordlet.qos.cpu_burst.quota import told_us


class Group(msgspec.Struct, frozen=True):
    """``series``: its metrics of throttled periods, of CPU used, and of the time that its CPUs
    stood still in a throttled period, with ``name``, the value of their only label. ``told_us``:
    the quota that it should have, where somebody tells. ``labels``: of its gauges; empty: none."""

    cgroup: str
    title: str
    name: str
    series: tuple[Metric, Metric, Metric]
    config: BurstLimits
    told_us: int | None
    labels: Labels = ()


def of_container(pod: Pod, container: Container, config: BurstLimits, in_force: InForce) -> Group:
    limit_milli = container.resources.limit_cpu_milli
    return Group(
        container.cgroup,
        f"container {container.name or container.id} of {pod.title}",
        container.id,
        (CONTAINER_CPU_THROTTLED, CONTAINER_CPU_USAGE, CONTAINER_CPU_THROTTLED_TIME),
        config,
        told_us(in_force, container.cgroup, container.requested, limit_milli),
        (pod.namespace, pod.name, container.id, container.name),
    )


def of_application(app: Application, config: BurstLimits, in_force: InForce) -> Group:
    return Group(
        app.cgroup,
        f"application {app.name}",
        app.name,
        (
            HOST_APPLICATION_CPU_THROTTLED,
            HOST_APPLICATION_CPU_USAGE,
            HOST_APPLICATION_CPU_THROTTLED_TIME,
        ),
        config,
        told_us(in_force, app.cgroup, {}, app.resources.limit_cpu_milli),
    )


NOT_FOR = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.BE})
"""LSE and LSR work has CPUs of its own, best effort must not take more than it was given."""
_BURST = frozenset({"auto", "cpuBurstOnly"})
_QUOTA = frozenset({"auto", "cfsQuotaBurstOnly"})


class BurstLimits(msgspec.Struct, frozen=True):
    """Percentages of the CPU limit. ``burst_percent`` 0: no burst. ``quota_percent`` None: the
    quota is not raised. ``period_s`` -1: for ever."""

    burst_percent: int = 0
    quota_percent: int | None = None
    period_s: int = -1
    origin: str = "cpuBurstStrategy"

    @property
    def is_off(self) -> bool:
        """Neither budget nor quota is asked for."""
        return not self.burst_percent and self.quota_percent is None


def of_node(strategy: CPUBurstStrategy, origin: str = "cpuBurstStrategy") -> BurstLimits:
    return BurstLimits(
        burst_percent=(strategy.cpu_burst_percent or 0) if strategy.policy in _BURST else 0,
        quota_percent=strategy.cfs_quota_burst_percent if strategy.policy in _QUOTA else None,
        period_s=(
            -1
            if strategy.cfs_quota_burst_period_seconds is None
            else strategy.cfs_quota_burst_period_seconds
        ),
        origin=origin,
    )


def of_pod(pod: Pod, strategy: CPUBurstStrategy, node: BurstLimits) -> BurstLimits | None:
    """``node``: ``of_node(strategy)``, for pods that ask for nothing of their own.

    None: this pod may not burst. An annotation that cannot be read counts as absent; it is shown
    with the pod's faults.
    """
    if pod.raw_qos in NOT_FOR or not pod.is_active:
        return None
    try:
        own = keys.CPU_BURST.read(pod.annotations)
    except AnnotationError:
        own = None
    if own is None:
        return node
    merged = overlay(strategy, own) or strategy
    return of_node(merged, f"annotation {keys.CPU_BURST.name}")
