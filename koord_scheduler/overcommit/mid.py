"""Mid resources of a node: what prod pods asked for and, by prediction, will not use
(docs/reference/central.md 1.5)."""

from __future__ import annotations

from typing import NamedTuple

from koord_scheduler.model.amounts import NOTHING, Amounts
from koord_scheduler.model.facts import MetricFacts, NodeFacts, PodFacts
from koord_scheduler.overcommit.batch import part_of
from koord_scheduler.overcommit.usage import (
    annotation_reserved,
    kubelet_reserved,
    prod_request,
    system_usage,
)
from koordlet.protocol.colocation import ColocationStrategy

STATIC = "static"


class Terms(NamedTuple):
    """``unused``: of the whole node; 0 where its usage is not known. In static mode ``fixed`` alone
    counts, else it is None."""

    reclaimable: Amounts
    unused: Amounts
    reclaimed: Amounts
    unallocated: Amounts
    from_unallocated: Amounts
    fixed: Amounts | None
    limit: Amounts
    result: Amounts


def mid(
    node: NodeFacts, metric: MetricFacts, pods: tuple[PodFacts, ...], strategy: ColocationStrategy
) -> Terms:
    """``strategy``: merged, with every percentage."""
    capacity = node.capacity
    limit = _parts(
        capacity, strategy.mid_cpu_threshold_percent, strategy.mid_memory_threshold_percent
    )
    if strategy.mid_reclaim_mode == STATIC:
        fixed = _parts(
            capacity,
            strategy.mid_static_cpu_reserved_percent,
            strategy.mid_static_memory_reserved_percent,
        )
        nothing = (NOTHING,) * 5
        return Terms(*nothing, fixed=fixed, limit=limit, result=fixed.smallest(limit))
    reclaimable = metric.prod_reclaimable or NOTHING
    used = metric.node_usage
    unused = NOTHING if used is None else capacity.minus(used)
    reclaimed = reclaimable.smallest(unused).not_negative()
    reserved = (
        system_usage(metric, with_mid=False)
        .largest(kubelet_reserved(node))
        .largest(annotation_reserved(node))
    )
    unallocated = capacity.minus(reserved).minus(prod_request(pods)).not_negative()
    percent = strategy.mid_unallocated_percent
    from_unallocated = _parts(unallocated, percent, percent)
    return Terms(
        reclaimable=reclaimable,
        unused=unused,
        reclaimed=reclaimed,
        unallocated=unallocated,
        from_unallocated=from_unallocated,
        fixed=None,
        limit=limit,
        result=reclaimed.plus(from_unallocated).smallest(limit),
    )


def _parts(of: Amounts, cpu_percent: int | None, memory_percent: int | None) -> Amounts:
    return Amounts(
        part_of(of.cpu_milli, cpu_percent or 0), part_of(of.memory_bytes, memory_percent or 0)
    )
