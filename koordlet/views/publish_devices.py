"""The gauges of devices, brought up to date when somebody looks at the metrics page."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.decision import metrics as k
from koordlet.decision.family import Family, Labels
from koordlet.decision.metrics import Metric
from koordlet.engine.engine import Engine
from koordlet.report import device_metrics as r
from koordlet.views.usage import Usage

_OF_DEVICES: dict[Family, Metric] = {
    r.NODE_GPU_CORE_USAGE: k.NODE_GPU_CORE_USAGE,
    r.NODE_GPU_MEMORY_USAGE: k.NODE_GPU_MEMORY_USAGE,
    r.NODE_GPU_MEMORY_CAPACITY: k.NODE_GPU_MEMORY_TOTAL,
    r.SYS_GPU_CORE_USAGE: k.SYS_GPU_CORE_USAGE,
    r.SYS_GPU_MEMORY_USAGE: k.SYS_GPU_MEMORY_USAGE,
    r.NODE_GPU_INSTANCE_MEMORY_USAGE: k.NODE_GPU_INSTANCE_MEMORY_USAGE,
    r.NODE_GPU_INSTANCE_MEMORY_CAPACITY: k.NODE_GPU_INSTANCE_MEMORY_TOTAL,
    r.DEVICE_HEALTHY: k.NODE_DEVICE_HEALTHY,
    r.RDMA_RECEIVED: k.NODE_RDMA_RECEIVED,
    r.RDMA_SENT: k.NODE_RDMA_SENT,
    r.RDMA_EVENTS: k.NODE_RDMA_COUNTER,
}
"""Families with the labels of the series, in their order."""


def publish_devices(
    engine: Engine,
    usage: Usage,
    pods: Mapping[str, Labels],
    containers: Mapping[str, Labels],
    applications: Mapping[str, Labels],
) -> None:
    """``pods`` and the like: what the page calls each, by the label of its series."""
    for family, metric in _OF_DEVICES.items():
        engine.parts.metrics.replace(family, usage.latest(metric, slow=True))
    of_users: tuple[tuple[Family, Metric, Mapping[str, Labels]], ...] = (
        (r.POD_GPU_CORE_USAGE, k.POD_GPU_CORE_USAGE, pods),
        (r.POD_GPU_MEMORY_USAGE, k.POD_GPU_MEMORY_USAGE, pods),
        (r.CONTAINER_GPU_CORE_USAGE, k.CONTAINER_GPU_CORE_USAGE, containers),
        (r.CONTAINER_GPU_MEMORY_USAGE, k.CONTAINER_GPU_MEMORY_USAGE, containers),
        (r.HOST_APPLICATION_GPU_CORE_USAGE, k.HOST_APPLICATION_GPU_CORE_USAGE, applications),
        (r.HOST_APPLICATION_GPU_MEMORY_USAGE, k.HOST_APPLICATION_GPU_MEMORY_USAGE, applications),
    )
    for family, metric, subjects in of_users:
        found = usage.latest(metric, slow=True).items()
        samples = {
            (*subjects[subject], *card): value
            for (subject, *card), value in found
            if subject in subjects
        }
        engine.parts.metrics.replace(family, samples)
