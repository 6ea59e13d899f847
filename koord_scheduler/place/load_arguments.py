"""Arguments of LoadAwareScheduling, and what an annotation of a node puts in their place
(docs/reference/central.md 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.texts import decoded
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import CPU, MEMORY

NAME = "LoadAwareScheduling"
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
Percents = dict[str, int]
_AGGREGATIONS = ("avg", "p50", "p90", "p95", "p99")


class NodeAggregated(msgspec.Struct, frozen=True, rename="camel"):
    """Durations are texts such as ``5m``; 0 for the longest window that there is
    (docs/reference/protocol.md, ``usage-thresholds``)."""

    usage_thresholds: Percents | None = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration: str | None = None


class Aggregated(NodeAggregated, frozen=True):
    score_aggregation_type: str | None = None
    score_aggregated_duration: str | None = None


class Counted(msgspec.Struct, frozen=True):
    """A percentile that counts: its thresholds where it has some, its name, and its window, 0 for
    the longest one."""

    usage_thresholds: Percents = {}
    kind: str = ""
    window_s: float = 0.0


class LoadArgs(Args, frozen=True, kw_only=True):
    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: Percents = msgspec.field(default_factory=dict)
    dominant_resource_weight: int = 0
    usage_thresholds: Percents = msgspec.field(default_factory=dict)
    prod_usage_thresholds: Percents = msgspec.field(default_factory=dict)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = "defaultEstimator"
    estimated_scaling_factors: Percents = msgspec.field(default_factory=dict)
    estimated_seconds_after_pod_scheduled: int = 0
    estimated_seconds_after_initialized: int = 0
    allow_customize_estimation: bool = False
    aggregated: Aggregated | None = None
    supported_resources: tuple[str, ...] = ()


class Thresholds(msgspec.Struct, frozen=True, rename="camel"):
    """Of one node, by annotation; None: those of the arguments."""

    usage_thresholds: Percents | None = None
    prod_usage_thresholds: Percents | None = None
    aggregated_usage: NodeAggregated | None = None


def window_s(duration: str | None) -> float:
    """Raises ProtocolError."""
    return parse_duration(duration) if duration else 0.0


def counted(aggregated: NodeAggregated | None) -> Counted:
    """Return what counts of it; nothing without thresholds or without a percentile. Raises
    ProtocolError."""
    if aggregated is None or not aggregated.usage_thresholds:
        return Counted()
    kind = aggregated.usage_aggregation_type
    if not kind:
        return Counted()
    return Counted(
        aggregated.usage_thresholds, kind, window_s(aggregated.usage_aggregated_duration)
    )


def scoring(args: LoadArgs) -> Counted:
    """Return the percentile by which nodes score; without ``kind`` where they do by usage."""
    found = args.aggregated or Aggregated()
    return Counted(
        kind=found.score_aggregation_type or "", window_s=window_s(found.score_aggregated_duration)
    )


_thresholds = msgspec.json.Decoder(Thresholds)


def own_thresholds(node: Node) -> Thresholds:
    found = decoded(_thresholds, node.annotations.get(THRESHOLDS)) or Thresholds()
    try:
        if found.aggregated_usage is not None:
            window_s(found.aggregated_usage.usage_aggregated_duration)
    except ProtocolError:
        return Thresholds()
    return found


def _check_aggregated(aggregated: Aggregated) -> None:
    for kind in (aggregated.usage_aggregation_type, aggregated.score_aggregation_type):
        if kind and kind not in _AGGREGATIONS:
            kinds = ", ".join(_AGGREGATIONS)
            raise ArgumentError(f"{NAME}: aggregated: type {kind!r}; there are {kinds}")
    try:
        window_s(aggregated.usage_aggregated_duration)
        window_s(aggregated.score_aggregated_duration)
    except ProtocolError as error:
        raise ArgumentError(f"{NAME}: aggregated: {error}") from None


def load_args(args: Mapping[str, Any]) -> LoadArgs:
    """Checked, with the defaults that depend on other arguments. Raises ArgumentError."""
    found = read_args(NAME, LoadArgs, args)
    if found.estimator != "defaultEstimator":
        raise ArgumentError(f"{NAME}: estimator {found.estimator!r}; there is defaultEstimator")
    percentiles = found.aggregated or Aggregated()
    _check_aggregated(percentiles)
    factors = {CPU: 85, MEMORY: 70, **found.estimated_scaling_factors}
    weights = found.resource_weights
    if not weights and not found.dominant_resource_weight:
        weights = {CPU: 1, MEMORY: 1}
    limits = found.usage_thresholds or {CPU: 65, MEMORY: 95}
    for words, percents, least in (
        ("resourceWeights", weights, 1),
        ("estimatedScalingFactors", factors, 1),
        ("usageThresholds", limits, 0),
        ("prodUsageThresholds", found.prod_usage_thresholds, 0),
        ("aggregated.usageThresholds", percentiles.usage_thresholds or {}, 0),
    ):
        for name, percent in percents.items():
            check_range(NAME, f"{words}.{name}", percent, least, 100)
    check_range(NAME, "dominantResourceWeight", found.dominant_resource_weight, 0, 100)
    for name in weights:
        if name not in factors:
            raise ArgumentError(f"{NAME}: resourceWeights.{name} needs an estimatedScalingFactors")
    if found.node_metric_expiration_seconds <= 0:
        raise ArgumentError(f"{NAME}: nodeMetricExpirationSeconds must be positive")
    return msgspec.structs.replace(
        found,
        resource_weights=weights,
        usage_thresholds=limits,
        estimated_scaling_factors=factors,
    )
