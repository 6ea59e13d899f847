"""Batch resources of a node: what pods of high priority leave over, less a margin
(docs/reference/central.md 1.4)."""

from __future__ import annotations

from typing import NamedTuple

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import MetricFacts, NodeFacts, PodFacts
from koord_scheduler.overcommit.usage import (
    Sums,
    annotation_reserved,
    kubelet_reserved,
    shares,
    sums,
    system_usage,
)
from koordlet.protocol.colocation import ColocationStrategy

MAX_USAGE_REQUEST = "maxUsageRequest"
REQUEST = "request"


class Terms(NamedTuple):
    """Each term of the formula. ``margin`` is negative where more than all is handed out.
    ``system``: the usage of the system and of host applications; ``outside``: that or what is
    reserved, whichever is larger. ``limit``: the cap of each, None where there is none."""

    capacity: Amounts
    margin: Amounts
    kubelet_reserved: Amounts
    annotation_reserved: Amounts
    reserved: Amounts
    system: Amounts
    outside: Amounts
    pods: Sums
    by_usage: Amounts
    by_request: Amounts
    by_largest: Amounts
    limit: tuple[int | None, int | None]
    result: Amounts


class Left(NamedTuple):
    """Of one resource, by each policy; never below 0."""

    by_usage: int
    by_request: int
    by_largest: int


def left(budget: int, outside: int, reserved: int, requested: int, used: int, largest: int) -> Left:
    """What is left of ``budget``, which is the capacity less the margin."""
    return Left(
        max(budget - outside - used, 0),
        max(budget - reserved - requested, 0),
        max(budget - outside - largest, 0),
    )


def margin_of(capacity: int, reclaim_percent: int) -> int:
    """What stays unused; cut off towards 0."""
    return int(capacity * ((100 - reclaim_percent) / 100))


def part_of(capacity: int, percent: int) -> int:
    return int(capacity * (percent / 100))


def cpu_by(strategy: ColocationStrategy, each: Left) -> int:
    """The policy ``request`` is one of memory alone and counts as ``usage`` here."""
    return each.by_largest if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else each.by_usage


def memory_by(strategy: ColocationStrategy, each: Left) -> int:
    if strategy.memory_calculate_policy == REQUEST:
        return each.by_request
    if strategy.memory_calculate_policy == MAX_USAGE_REQUEST:
        return each.by_largest
    return each.by_usage


def batch(
    node: NodeFacts, metric: MetricFacts, pods: tuple[PodFacts, ...], strategy: ColocationStrategy
) -> Terms:
    """``strategy``: merged, with every percentage. Before normalisation and third parties."""
    capacity = node.capacity
    margin = Amounts(
        margin_of(capacity.cpu_milli, strategy.cpu_reclaim_threshold_percent or 0),
        margin_of(capacity.memory_bytes, strategy.memory_reclaim_threshold_percent or 0),
    )
    by_kubelet, by_annotation = kubelet_reserved(node), annotation_reserved(node)
    reserved = by_kubelet.largest(by_annotation)
    system = system_usage(metric, with_mid=True)
    outside = system.largest(reserved)
    of_pods = sums(shares(pods, metric))
    cpu = left(
        capacity.cpu_milli - margin.cpu_milli,
        outside.cpu_milli,
        reserved.cpu_milli,
        of_pods.requested.cpu_milli,
        of_pods.used.cpu_milli,
        of_pods.largest.cpu_milli,
    )
    memory = left(
        capacity.memory_bytes - margin.memory_bytes,
        outside.memory_bytes,
        reserved.memory_bytes,
        of_pods.requested.memory_bytes,
        of_pods.used.memory_bytes,
        of_pods.largest.memory_bytes,
    )
    cpu_percent, memory_percent = (
        strategy.batch_cpu_threshold_percent,
        strategy.batch_memory_threshold_percent,
    )
    limit = (
        None if cpu_percent is None else part_of(capacity.cpu_milli, cpu_percent),
        None if memory_percent is None else part_of(capacity.memory_bytes, memory_percent),
    )
    return Terms(
        capacity=capacity,
        margin=margin,
        kubelet_reserved=by_kubelet,
        annotation_reserved=by_annotation,
        reserved=reserved,
        system=system,
        outside=outside,
        pods=of_pods,
        by_usage=Amounts(cpu.by_usage, memory.by_usage),
        by_request=Amounts(cpu.by_request, memory.by_request),
        by_largest=Amounts(cpu.by_largest, memory.by_largest),
        limit=limit,
        result=Amounts(
            at_most(cpu_by(strategy, cpu), limit[0]), at_most(memory_by(strategy, memory), limit[1])
        ),
    )


def at_most(amount: int, limit: int | None) -> int:
    return amount if limit is None or amount < limit else limit
