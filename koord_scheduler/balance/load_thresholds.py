"""Arguments and thresholds of LowNodeLoad (docs/reference/central.md 10.3, 10.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.balance.anomaly import Condition
from koord_scheduler.balance.selecting import (
    Namespaces,
    PodSelector,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    duration_s,
)
from koord_scheduler.balance.world import Amounts, NodeUsage, World
from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.cluster.arguments import Args, ArgumentError
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.selector import LabelSelector

NAME = "LowNodeLoad"
DEFAULT_POOL = "__default_node_pool__"
Percents = dict[str, float]


class AnomalyCondition(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """Counts of 0 are those of the arguments, or else 5 and 3."""

    timeout: str = "1m"
    consecutive_abnormalities: int = 0
    consecutive_normalities: int = 0


class Pool(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What it does not set is that of the arguments themselves."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool | None = None
    low_thresholds: Percents | None = None
    high_thresholds: Percents | None = None
    prod_low_thresholds: Percents | None = None
    prod_high_thresholds: Percents | None = None
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyCondition | None = None


class LowNodeLoadArgs(Args, frozen=True):
    paused: bool = False
    dry_run: bool = False
    number_of_nodes: int = 0
    node_metric_expiration_seconds: int = 180
    evictable_namespaces: Namespaces | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    node_fit: bool = True
    use_deviation_thresholds: bool = False
    low_thresholds: Percents | None = None
    high_thresholds: Percents | None = None
    prod_low_thresholds: Percents | None = None
    prod_high_thresholds: Percents | None = None
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyCondition = AnomalyCondition()
    detector_cache_timeout: str = "5m"
    node_pools: tuple[Pool, ...] = ()


class PoolSettings(NamedTuple):
    """Percentages by resource, complete. ``names``: every resource that has a threshold."""

    name: str
    selector: LabelSelector | None
    deviation: bool
    names: tuple[str, ...]
    low: Mapping[str, float]
    high: Mapping[str, float]
    prod_low: Mapping[str, float]
    prod_high: Mapping[str, float]
    weights: Mapping[str, float]
    condition: Condition


class Load(NamedTuple):
    """One node in a pool: what is used, and the bounds, all as amounts."""

    node: Node
    capacity: Amounts
    used: dict[str, int]
    prod: dict[str, int]
    low: Amounts
    high: Amounts
    prod_low: Amounts
    prod_high: Amounts

    @property
    def under(self) -> bool:
        return not self.node.unschedulable and _all_under(self.used, self.low)

    @property
    def over(self) -> tuple[str, ...]:
        return exceeded(self.used, self.high)

    @property
    def prod_under(self) -> bool:
        return not self.node.unschedulable and _all_under(self.prod, self.prod_low)

    @property
    def prod_over(self) -> tuple[str, ...]:
        return exceeded(self.prod, self.prod_high)


def exceeded(used: Amounts, bounds: Amounts) -> tuple[str, ...]:
    return tuple(name for name in sorted(bounds) if used.get(name, 0) > bounds[name])


def pools_of(args: LowNodeLoadArgs) -> tuple[PoolSettings, ...]:
    """The implicit first pool, then those that are listed. Raises ArgumentError."""
    check_namespaces(NAME, "evictableNamespaces", args.evictable_namespaces)
    check_pod_selectors(NAME, args.pod_selectors)
    if args.number_of_nodes < 0:
        raise ArgumentError(f"{NAME}: numberOfNodes must be at least 0")
    if args.node_metric_expiration_seconds <= 0:
        raise ArgumentError(f"{NAME}: nodeMetricExpirationSeconds must be more than 0")
    first = Pool(name=DEFAULT_POOL, node_selector=args.node_selector)
    return tuple(
        _pool(args, each, f"nodePools[{number - 1}]" if number else "the arguments")
        for number, each in enumerate((first, *args.node_pools))
    )


def _pool(args: LowNodeLoadArgs, pool: Pool, where: str) -> PoolSettings:
    check_selector(NAME, f"{where}.nodeSelector", pool.node_selector)
    deviation = pool.use_deviation_thresholds
    if deviation is None:
        deviation = args.use_deviation_thresholds
    low = _first(pool.low_thresholds, args.low_thresholds)
    high = _first(pool.high_thresholds, args.high_thresholds)
    prod_low = _first(pool.prod_low_thresholds, args.prod_low_thresholds)
    prod_high = _first(pool.prod_high_thresholds, args.prod_high_thresholds)
    for lower, upper, words in (
        (low, high, "lowThresholds must not exceed highThresholds"),
        (prod_low, prod_high, "prodLowThresholds must not exceed prodHighThresholds"),
        (prod_high, high, "prodHighThresholds must not exceed highThresholds"),
    ):
        _check(where, lower, upper, words)
    names = tuple(sorted({"memory", *low, *high, *prod_low, *prod_high}))
    # No bound at all: in deviation mode 0 stands for that.
    open_ = 0.0 if deviation else 100.0
    weights = pool.resource_weights
    if weights is None:
        weights = args.resource_weights or {}
    weighed = {"cpu", "memory", *low, *high, *weights}
    base = args.anomaly_condition
    anomaly = pool.anomaly_condition or base
    abnormal = anomaly.consecutive_abnormalities or base.consecutive_abnormalities or 5
    normal = anomaly.consecutive_normalities or base.consecutive_normalities or 3
    if min(abnormal, normal) <= 0:
        raise ArgumentError(f"{NAME}: {where}.anomalyCondition: counts must be more than 0")
    return PoolSettings(
        name=pool.name,
        selector=pool.node_selector,
        deviation=deviation,
        names=names,
        low={name: low.get(name, open_) for name in names},
        high={name: high.get(name, open_) if name in low else open_ for name in names},
        prod_low={name: prod_low.get(name, open_) for name in names},
        prod_high={
            name: prod_high.get(name, open_) if name in prod_low else open_ for name in names
        },
        weights={name: float(max(weights.get(name, 1), 0) or 1) for name in sorted(weighed)},
        condition=Condition(
            abnormal,
            normal,
            duration_s(NAME, f"{where}.anomalyCondition.timeout", anomaly.timeout),
        ),
    )


def loads(
    world: World, nodes: Iterable[Node], pool: PoolSettings, expires_s: float
) -> dict[str, Load]:
    """Of nodes whose report is there and young enough, by name."""
    seen: dict[str, tuple[Node, Amounts, dict[str, int], dict[str, int]]] = {}
    for node in nodes:
        usage = world.usage.get(node.name)
        if usage is None or not usage.updated_s or world.now_s - usage.updated_s >= expires_s:
            continue
        used, prod = _used(world, node, usage, pool.names)
        seen[node.name] = (node, capacity_of(node), used, prod)
    means = [_mean(pool.names, ((c, used) for _, c, used, _ in seen.values()))]
    means.append(_mean(pool.names, ((c, prod) for _, c, _, prod in seen.values())))
    return {
        name: Load(
            node,
            capacity,
            used,
            prod,
            *_bounds(pool, capacity, pool.low, pool.high, means[0]),
            *_bounds(pool, capacity, pool.prod_low, pool.prod_high, means[1]),
        )
        for name, (node, capacity, used, prod) in seen.items()
    }


def capacity_of(node: Node) -> Amounts:
    """Allocatable before amplification. An annotation that cannot be read counts as none."""
    try:
        raw = keys.RAW_ALLOCATABLE.read(node.annotations)
    except ProtocolError:
        raw = None
    if not raw:
        return node.allocatable
    amounts = {name: amount_of(str(each), name) or 0 for name, each in raw.items()}
    return {**node.allocatable, **amounts}


def _used(
    world: World, node: Node, usage: NodeUsage, names: tuple[str, ...]
) -> tuple[dict[str, int], dict[str, int]]:
    # A report is older than the last evictions: who left or leaves is not evicted for again.
    residents = [e for e in world.active_on(node.name) if e.pod.key not in world.leaving]
    here = {each.pod.key for each in residents}
    prod_keys = {each.pod.key for each in residents if each.prod}
    used = {name: usage.system.get(name, 0) for name in names}
    prod = dict.fromkeys(names, 0)
    for key, amounts in usage.pods.items():
        if key not in here:
            continue
        for name in names:
            amount = amounts.get(name, 0)
            used[name] += amount
            if key in prod_keys:
                prod[name] += amount
    if "pods" in used:
        used["pods"], prod["pods"] = len(residents), len(prod_keys)
    return used, prod


def _mean(names: tuple[str, ...], nodes: Iterable[tuple[Amounts, Amounts]]) -> dict[str, float]:
    """Percent."""
    total, count = dict.fromkeys(names, 0.0), 0
    for capacity, used in nodes:
        count += 1
        for name in names:
            if capacity.get(name, 0):
                total[name] += used[name] * 100 / capacity[name]
    return {name: total[name] / count for name in names} if count else total


def _bounds(
    pool: PoolSettings,
    capacity: Amounts,
    low: Mapping[str, float],
    high: Mapping[str, float],
    mean: Mapping[str, float],
) -> tuple[dict[str, int], dict[str, int]]:
    lows, highs = {}, {}
    for name in pool.names:
        has = capacity.get(name, 0)
        if pool.deviation and low[name] == 0:
            lows[name] = highs[name] = has
        elif pool.deviation:
            lows[name] = _share(min(max(mean[name] - low[name], 0.0), 100.0), has)
            highs[name] = _share(min(max(mean[name] + high[name], 0.0), 100.0), has)
        else:
            lows[name], highs[name] = _share(low[name], has), _share(high[name], has)
    return lows, highs


def _share(percent: float, amount: int) -> int:
    return int(percent * 0.01 * amount)


def _all_under(used: Amounts, bounds: Amounts) -> bool:
    return all(used.get(name, 0) <= bound for name, bound in bounds.items())


def _first(own: Percents | None, inherited: Percents | None) -> Percents:
    return own if own is not None else inherited or {}


def _check(where: str, lower: Percents, upper: Percents, words: str) -> None:
    for name in sorted({*lower, *upper}):
        below, above = lower.get(name), upper.get(name)
        if any(each is not None and each < 0 for each in (below, above)):
            raise ArgumentError(f"{NAME}: {where}: percentages of {name} must be at least 0")
        if below is not None and above is not None and below > above:
            raise ArgumentError(f"{NAME}: {where}: {words} ({name}: {below:g} > {above:g})")
