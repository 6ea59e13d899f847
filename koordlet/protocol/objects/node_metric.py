"""NodeMetric: what a node used, for who places pods and hands out what is left
(docs/reference/protocol.md 4.2).

Quantities are text, as they stand on the wire: they are made once and compared as text.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from koordlet.protocol.colocation import MemoryPolicy, MetricAggregatePolicy
from koordlet.protocol.objects.device import DeviceInfo
from koordlet.protocol.slo import Positive, Section

QuantityText = Annotated[str, Meta(extra={"format": "quantity"})]
InstantText = Annotated[str, Meta(extra={"openapi": "date-time"})]


class MetricCollectPolicy(Section, frozen=True):
    """What the manager asks koordlet to report."""

    aggregate_duration_seconds: Positive | None = None
    report_interval_seconds: Positive | None = None
    node_aggregate_policy: MetricAggregatePolicy | None = None
    node_memory_collect_policy: MemoryPolicy | None = None


class NodeMetricSpec(Section, frozen=True):
    metric_collect_policy: MetricCollectPolicy | None = None


class ResourceMap(Section, frozen=True):
    resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    devices: tuple[DeviceInfo, ...] = ()


class AggregatedUsage(Section, frozen=True):
    """``usage`` by ``avg``, ``p50``, ``p90``, ``p95``, ``p99``; empty where the samples span less
    than half of ``duration``. Both keys are always written."""

    usage: dict[str, ResourceMap]
    duration: Annotated[str, Meta(extra={"format": "duration"})]


class NumaUsage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    numa_node_id: int = msgspec.field(name="numaNodeID")
    node_usage: ResourceMap
    system_usage: ResourceMap = ResourceMap()


class NodeUsage(Section, frozen=True):
    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceMap = ResourceMap()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    numa_usages: tuple[NumaUsage, ...] = ()


class PodUsage(Section, frozen=True):
    namespace: str = ""
    name: str = ""
    priority: str = ""
    qos: str = ""
    pod_usage: ResourceMap = ResourceMap()


class ApplicationUsage(Section, frozen=True):
    name: str = ""
    usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""


class PredictedUsage(msgspec.Struct, frozen=True):
    """``resource`` is written also while nothing could be predicted."""

    resource: ResourceMap = ResourceMap()


class NodeMetricStatus(Section, frozen=True):
    update_time: InstantText | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] = ()
    host_application_metric: tuple[ApplicationUsage, ...] = ()
    prod_reclaimable_metric: PredictedUsage | None = None
    prod_peak_metric: PredictedUsage | None = None
