"""NodeMetric: what a node used, for who places pods and hands out what is left
(docs/reference/protocol.md 4.2).

Quantities are text, as they stand on the wire: they are made once and compared as text.
"""

from __future__ import annotations

from typing import Annotated, Any

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
    """Window of the averages, in seconds."""
    report_interval_seconds: Positive | None = None
    """Interval of the reports, in seconds."""
    node_aggregate_policy: MetricAggregatePolicy | None = None
    """Further aggregates that are asked for."""
    node_memory_collect_policy: MemoryPolicy | None = None
    """Share of the page cache that counts as used memory."""


class NodeMetricSpec(Section, frozen=True):
    metric_collect_policy: MetricCollectPolicy | None = None
    """Contents and rhythm of the reports."""


class ResourceMap(Section, frozen=True):
    resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Amounts by resource."""
    devices: tuple[DeviceInfo, ...] = ()
    """Usage of each accelerator."""


class AggregatedUsage(Section, frozen=True):
    """``usage`` by ``avg``, ``p50``, ``p90``, ``p95``, ``p99``; empty where the samples span less
    than half of ``duration``. Both keys are always written."""

    usage: dict[str, ResourceMap]
    """Usage by aggregate: avg, p50, p90, p95, p99."""
    duration: Annotated[str, Meta(extra={"format": "duration"})]
    """Window of the aggregates."""


class NumaUsage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    numa_node_id: int = msgspec.field(name="numaNodeID")
    """Number of the NUMA node."""
    node_usage: ResourceMap
    """Usage of the NUMA node."""
    system_usage: ResourceMap = ResourceMap()
    """Usage by neither pods nor host applications."""


class NodeUsage(Section, frozen=True):
    node_usage: ResourceMap = ResourceMap()
    """Average usage of the whole node."""
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    """Aggregates of nodeUsage over longer windows."""
    system_usage: ResourceMap = ResourceMap()
    """Average usage by neither pods nor host applications."""
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    """Aggregates of systemUsage over longer windows."""
    numa_usages: tuple[NumaUsage, ...] = ()
    """Usage of each NUMA node."""


class PodUsage(Section, frozen=True):
    namespace: str = ""
    """Namespace of the pod."""
    name: str = ""
    """Name of the pod."""
    priority: str = ""
    """Priority class of the pod."""
    qos: str = ""
    """QoS class of the pod."""
    pod_usage: ResourceMap = ResourceMap()
    """Average usage of the pod."""
    extensions: dict[str, Any] | None = None
    """Figures of other components, by name."""


class ApplicationUsage(Section, frozen=True):
    name: str = ""
    """Name of the application."""
    usage: ResourceMap = ResourceMap()
    """Average usage of the application."""
    priority: str = ""
    """Priority class of the application."""
    qos: str = ""
    """QoS class of the application."""


class PredictedUsage(msgspec.Struct, frozen=True):
    """``resource`` is written also while nothing could be predicted."""

    resource: ResourceMap = ResourceMap()
    """Amounts that were predicted."""


class NodeMetricStatus(Section, frozen=True):
    update_time: InstantText | None = None
    """Time of the report."""
    node_metric: NodeUsage | None = None
    """Usage of the node."""
    pods_metric: tuple[PodUsage, ...] = ()
    """Usage of each pod."""
    host_application_metric: tuple[ApplicationUsage, ...] = ()
    """Usage of each host application."""
    prod_reclaimable_metric: PredictedUsage | None = None
    """Requests of production pods that will stay unused, as predicted."""
    prod_peak_metric: PredictedUsage | None = None
    """Peak of production pods, as predicted."""
