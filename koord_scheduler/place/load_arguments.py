"""Arguments of LoadAwareScheduling, and what an annotation of a node puts in their place
(docs/reference/central.md 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.texts import decoded
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import CPU, MEMORY

NAME = "LoadAwareScheduling"
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
Percents = dict[str, int]
_AGGREGATIONS = ("avg", "p50", "p90", "p95", "p99")


class Aggregated(msgspec.Struct, frozen=True, rename="camel"):
    """Durations are texts such as ``5m``, or seconds; 0 for the longest window that there is
    (docs/reference/protocol.md, ``usage-thresholds``)."""

    usage_thresholds: Percents = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str | float = 0.0
    score_aggregation_type: str = ""
    score_aggregated_duration: str | float = 0.0


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
    aggregated_usage: Aggregated | None = None


def window_s(duration: str | float) -> float:
    """Raises ProtocolError."""
    return parse_duration(duration) if isinstance(duration, str) else duration


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
        ("aggregated", found.aggregated.usage_thresholds if found.aggregated else {}, 0),
    ):
        for name, percent in percents.items():
            if not least <= percent <= 100:
                text = f"{NAME}: {words}.{name} is {percent}; it must be {least} to 100"
                raise ArgumentError(text)
    for name in weights:
        if name not in factors:
            raise ArgumentError(f"{NAME}: resourceWeights.{name} needs an estimatedScalingFactors")
    if found.aggregated is not None:
        _check_aggregated(found.aggregated)
    if found.node_metric_expiration_seconds <= 0:
        raise ArgumentError(f"{NAME}: nodeMetricExpirationSeconds must be positive")
    return msgspec.structs.replace(
        found,
        resource_weights=weights,
        usage_thresholds=limits,
        estimated_scaling_factors=factors,
    )
