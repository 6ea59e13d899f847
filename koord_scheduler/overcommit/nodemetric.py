"""The spec of a NodeMetric (docs/reference/central.md 1.7, docs/reference/protocol.md 4.2)."""

from __future__ import annotations

from typing import Any

from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.strategy import node_strategy
from koordlet.protocol.colocation import COLOCATION_DEFAULTS, ColocationStrategy
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError

POLICY = "metricCollectPolicy"
_AGGREGATE = "nodeAggregatePolicy"
_DURATIONS = "durations"


def metric_spec(configuration: Configuration, node: NodeFacts, present: Tree | None) -> Tree | None:
    """What ``spec`` should be; None where no write is due: it says so already, or the ConfigMap
    cannot be read and there is a spec. ``present``: the spec of the object, None where there is no
    object."""
    layers = configuration.colocation
    policy = (present or {}).get(POLICY)
    if (configuration.error or layers is None) and policy:
        return None
    strategy = COLOCATION_DEFAULTS
    if layers is not None:
        found, _ = node_strategy(layers, node.labels, node.annotations)
        strategy = found if found.enable else COLOCATION_DEFAULTS
    wanted = _collect_policy(strategy)
    if present is not None and _comparable(policy) == _comparable(wanted):
        return None
    return {**(present or {}), POLICY: wanted}


def _collect_policy(strategy: ColocationStrategy) -> Tree:
    windows = strategy.metric_aggregate_policy or COLOCATION_DEFAULTS.metric_aggregate_policy
    durations = windows.durations if windows is not None else None
    return {
        "aggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        "reportIntervalSeconds": strategy.metric_report_interval_seconds,
        _AGGREGATE: {_DURATIONS: [go_duration(each) for each in durations or ()]},
        "nodeMemoryCollectPolicy": strategy.metric_memory_collect_policy,
    }


def go_duration(seconds: float) -> str:
    """As Go writes durations: hours, minutes and seconds from the largest that is there, ``5m0s``;
    less than a second in the largest unit that makes it a whole, ``1.5ms``."""
    nano = round(seconds * 10**9)
    if nano == 0:
        return "0s"
    if nano < 10**9:
        unit, size = (
            ("ms", 10**6) if nano >= 10**6 else ("µs", 10**3) if nano >= 10**3 else ("ns", 1)
        )
        return f"{_decimal(nano, size)}{unit}"
    minutes, rest_nano = divmod(nano, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest_nano, 10**9)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _decimal(number: int, size: int) -> str:
    whole, rest = divmod(number, size)
    fraction = str(rest).rjust(len(str(size)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _comparable(policy: Any) -> Any:
    """With durations as numbers: one length of time has several texts."""
    if not isinstance(policy, dict) or not isinstance(policy.get(_AGGREGATE), dict):
        return policy
    texts = policy[_AGGREGATE].get(_DURATIONS)
    try:
        durations = [parse_duration(str(each)) for each in texts or ()]
    except ProtocolError:
        durations = texts
    return {**policy, _AGGREGATE: {**policy[_AGGREGATE], _DURATIONS: durations}}
