"""What every node offers and why: the answer of ``koord-scheduler nodes``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.noderesource import TIERS, Plan, plan


class NodeRow(msgspec.Struct, frozen=True):
    """CPU in milli-cores, memory in bytes. ``offered``: what stands on the node now; ``computed``:
    what should, None = nothing. ``report_age_s``: None where the node never reported."""

    node: str
    capacity_cpu_milli: int
    capacity_memory_bytes: int
    used_cpu_milli: int | None
    used_memory_bytes: int | None
    pods: int
    report_age_s: float | None
    offered: dict[str, int]
    computed: dict[str, int | None]
    why: str


def overview(inputs: Iterable[Inputs], configuration: Configuration, now_s: float) -> list[NodeRow]:
    return [_row(each, configuration, now_s) for each in inputs]


def _row(inputs: Inputs, configuration: Configuration, now_s: float) -> NodeRow:
    node, metric = inputs.node, inputs.metric
    used: Amounts | None = metric.node_usage if metric is not None else None
    updated_s = metric.update_time_s if metric is not None else None
    wanted = plan(inputs, configuration, now_s)
    resources: Mapping[str, int | None] = wanted.resources if wanted is not None else {}
    return NodeRow(
        node=node.name,
        capacity_cpu_milli=node.capacity.cpu_milli,
        capacity_memory_bytes=node.capacity.memory_bytes,
        used_cpu_milli=used.cpu_milli if used is not None else None,
        used_memory_bytes=used.memory_bytes if used is not None else None,
        pods=sum(pod.counts for pod in inputs.pods),
        report_age_s=max(0.0, now_s - updated_s) if updated_s is not None else None,
        offered={
            name: node.extended_allocatable[name]
            for name in TIERS
            if name in node.extended_allocatable
        },
        computed={name: resources.get(name) for name in TIERS},
        why=_why(wanted),
    )


def _why(wanted: Plan | None) -> str:
    if wanted is None:
        return "colocation-config was never readable"
    if wanted.problems:
        return "; ".join(wanted.problems)
    if wanted.reset:
        return wanted.reset
    strategy = wanted.strategy
    return (
        f"cpu {strategy.cpu_calculate_policy} up to {strategy.cpu_reclaim_threshold_percent} %, "
        f"memory {strategy.memory_calculate_policy} up to "
        f"{strategy.memory_reclaim_threshold_percent} %"
    )


def newest_report_s(inputs: Iterable[Inputs]) -> float | None:
    """The time of objects that were saved: that of the last report among them."""
    times = [
        each.metric.update_time_s
        for each in inputs
        if each.metric is not None and each.metric.update_time_s is not None
    ]
    return max(times, default=None)
