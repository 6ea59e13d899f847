"""The strategies of ``slo-controller-config`` that concern the manager, not the node
(docs/reference/protocol.md 5.2, 5.8, 5.9), with their defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from koordlet.protocol.slo import NotNegative, Percent, Positive, Section

Seconds = Annotated[float, Meta(gt=0, extra={"format": "duration"})]
Ratio = Annotated[float, Meta(gt=0)]
MemoryPolicy = Literal["usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"]


class MetricAggregatePolicy(Section, frozen=True):
    durations: tuple[Seconds, ...] | None = None
    """Windows over which averages and percentiles are reported."""


class ColocationStrategy(Section, frozen=True):
    """``colocation-config`` (5.2)."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: Positive | None = None
    metric_report_interval_seconds: Positive | None = None
    metric_aggregate_policy: MetricAggregatePolicy | None = None
    metric_memory_collect_policy: MemoryPolicy | None = None
    cpu_reclaim_threshold_percent: NotNegative | None = None
    cpu_calculate_policy: Literal["usage", "request", "maxUsageRequest"] | None = None
    """``request`` is accepted and acts as ``usage`` (docs/reference/central.md 12, 4)."""
    memory_reclaim_threshold_percent: NotNegative | None = None
    memory_calculate_policy: Literal["usage", "request", "maxUsageRequest"] | None = None
    degrade_time_minutes: Positive | None = None
    update_time_threshold_seconds: Positive | None = None
    resource_diff_threshold: Annotated[float, Meta(gt=0, le=1)] | None = None
    mid_reclaim_mode: Literal["static"] | None = None
    mid_cpu_threshold_percent: Percent | None = msgspec.field(
        default=None, name="midCPUThresholdPercent"
    )
    mid_memory_threshold_percent: Percent | None = None
    mid_unallocated_percent: Percent | None = None
    mid_static_cpu_reserved_percent: Percent | None = msgspec.field(
        default=None, name="midStaticCPUReservedPercent"
    )
    mid_static_memory_reserved_percent: Percent | None = None
    batch_cpu_threshold_percent: NotNegative | None = msgspec.field(
        default=None, name="batchCPUThresholdPercent"
    )
    batch_memory_threshold_percent: NotNegative | None = None
    extensions: dict[str, Any] | None = None


COLOCATION_DEFAULTS = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_policy=MetricAggregatePolicy(durations=(300.0, 600.0, 1800.0)),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    cpu_calculate_policy="usage",
    memory_reclaim_threshold_percent=65,
    memory_calculate_policy="usage",
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)


class RatioModel(Section, frozen=True):
    """Ratios of one CPU model, by hyper-threading and turbo."""

    base_ratio: Ratio | None = None
    hyper_thread_enabled_ratio: Ratio | None = None
    turbo_enabled_ratio: Ratio | None = None
    hyper_thread_turbo_enabled_ratio: Ratio | None = None


class CPUNormalizationStrategy(Section, frozen=True):
    """``cpu-normalization-config`` (5.8)."""

    enable: bool | None = None
    default_ratio: Ratio | None = None
    ratio_model: dict[str, RatioModel] | None = None


CPU_NORMALIZATION_DEFAULTS = CPUNormalizationStrategy(enable=False)


class ResourceAmplificationStrategy(Section, frozen=True):
    """``resource-amplification-config`` (5.9)."""

    enable: bool | None = None
    resource_amplification_ratio: dict[str, Annotated[float, Meta(ge=1)]] | None = None


RESOURCE_AMPLIFICATION_DEFAULTS = ResourceAmplificationStrategy(enable=False)
