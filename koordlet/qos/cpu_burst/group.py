"""What may burst: a container of a pod, or an application on the host."""

from __future__ import annotations

import msgspec

from koordlet.decision.metrics import (
    CONTAINER_CPU_THROTTLED,
    CONTAINER_CPU_THROTTLED_TIME,
    CONTAINER_CPU_USAGE,
    HOST_APPLICATION_CPU_THROTTLED,
    HOST_APPLICATION_CPU_THROTTLED_TIME,
    HOST_APPLICATION_CPU_USAGE,
    Metric,
)
from koordlet.decision.plan import Setting
from koordlet.decision.snapshot import Application, Container, InForce, Pod
from koordlet.decision.why import Why
from koordlet.qos.cpu_burst.base import Held, told_us
from koordlet.qos.cpu_burst.config import Config
from koordlet.qos.cpu_burst.limiter import Bucket


class Group(msgspec.Struct, frozen=True):
    """``series``: its metrics of throttled periods, of CPU used, and of the time that its CPUs
    stood still in a throttled period, with ``name``, the value of their only label. ``told_us``:
    the quota that it should have, where somebody tells. ``labels``: of its gauges; empty: none."""

    cgroup: str
    title: str
    name: str
    series: tuple[Metric, Metric, Metric]
    config: Config
    told_us: int | None
    labels: tuple[tuple[str, str], ...] = ()


class Result(msgspec.Struct, frozen=True):
    """What becomes of one cgroup. ``base_us``, ``target_us``: its quota without and with the
    burst. ``unread``: the kernel did not tell its quota, so everything stays."""

    cgroup: str
    base_us: int = 0
    target_us: int = 0
    burst_us: int = 0
    settings: tuple[Setting, ...] = ()
    held: Held | None = None
    bucket: Bucket | None = None
    notes: tuple[Why, ...] = ()
    unread: bool = False


def of_container(pod: Pod, container: Container, config: Config, in_force: InForce) -> Group:
    limit_milli = container.resources.limit_cpu_milli
    return Group(
        container.cgroup,
        f"container {container.name or container.id} of {pod.title}",
        container.id,
        (CONTAINER_CPU_THROTTLED, CONTAINER_CPU_USAGE, CONTAINER_CPU_THROTTLED_TIME),
        config,
        told_us(in_force, container.cgroup, container.requested, limit_milli),
        (
            ("pod_namespace", pod.namespace),
            ("pod_name", pod.name),
            ("container_id", container.id),
            ("container_name", container.name),
        ),
    )


def of_application(app: Application, config: Config, in_force: InForce) -> Group:
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
