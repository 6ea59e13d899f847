"""Batch resources of each NUMA node (docs/reference/central.md 1.4, "NUMA zones").

What is not pinned to zones is divided evenly. Shares are rounded up to thousandths, of bytes too,
so memory is counted in thousandths here. Unlike in the reference a zone that has memory alone, such
as one of CXL memory, bears no CPU, of which the others would have more to give than there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import MetricFacts, PodFacts, ZoneFacts
from koord_scheduler.overcommit.batch import (
    Terms,
    at_most,
    cpu_by,
    left,
    margin_of,
    memory_by,
    part_of,
)
from koord_scheduler.overcommit.usage import Share, shares
from koordlet.protocol.colocation import ColocationStrategy

_MILLI = 1000


class _Sums(NamedTuple):
    """In thousandths, by place in the list of zones."""

    cpu: list[list[int]]
    memory: list[list[int]]


def batch_by_zone(
    zones: tuple[ZoneFacts, ...],
    metric: MetricFacts,
    pods: tuple[PodFacts, ...],
    terms: Terms,
    strategy: ColocationStrategy,
) -> dict[str, Amounts]:
    """Batch resources by the name of the zone, before normalisation. ``terms``: those of the node,
    of which the zones share what is reserved and what the system uses. Zones that have neither
    CPU nor memory are not in the list."""
    if not zones:
        return {}
    found = {}
    with_cpu, with_memory = (max(len(places), 1) for places in _places(zones))
    cpu, memory = _sums(zones, shares(pods, metric))
    outside, reserved = terms.outside, terms.reserved
    outside_cpu = _share(outside.cpu_milli, with_cpu)
    outside_memory = _share(outside.memory_bytes * _MILLI, with_memory)
    reserved_cpu = _share(reserved.cpu_milli, with_cpu)
    reserved_memory = _share(reserved.memory_bytes * _MILLI, with_memory)
    for place, zone in enumerate(zones):
        has = zone.allocatable
        cpu_budget = has.cpu_milli - margin_of(
            has.cpu_milli, strategy.cpu_reclaim_threshold_percent or 0
        )
        memory_budget = has.memory_bytes - margin_of(
            has.memory_bytes, strategy.memory_reclaim_threshold_percent or 0
        )
        cpu_left = left(cpu_budget, outside_cpu, reserved_cpu, *cpu[place])
        memory_left = left(memory_budget * _MILLI, outside_memory, reserved_memory, *memory[place])
        cpu_percent = strategy.batch_cpu_threshold_percent
        memory_percent = strategy.batch_memory_threshold_percent
        found[zone.name] = Amounts(
            at_most(
                cpu_by(strategy, cpu_left),
                None if cpu_percent is None else part_of(has.cpu_milli, cpu_percent),
            ),
            at_most(
                -(-memory_by(strategy, memory_left) // _MILLI),
                None if memory_percent is None else part_of(has.memory_bytes, memory_percent),
            ),
        )
    return found


def _sums(zones: tuple[ZoneFacts, ...], of: Iterable[Share]) -> _Sums:
    """Requested, used and largest of each zone."""
    with_cpu, with_memory = _places(zones)
    all_cpu, all_memory = list(with_cpu.values()), list(with_memory.values())
    cpu = [[0, 0, 0] for _ in zones]
    memory = [[0, 0, 0] for _ in zones]
    for share in of:
        places = _pinned(with_cpu, share.numa_nodes) or all_cpu
        if count := len(places):
            requested = _share(share.requested_cpu_milli, count)
            used = _share(share.used_cpu_milli, count)
            largest = _share(share.largest_cpu_milli, count)
            for place in places:
                sums = cpu[place]
                sums[0] += requested
                sums[1] += used
                sums[2] += largest
        places = _pinned(with_memory, share.numa_nodes) or all_memory
        if count := len(places):
            requested = _share(share.requested_memory_bytes * _MILLI, count)
            used = _share(share.used_memory_bytes * _MILLI, count)
            largest = _share(share.largest_memory_bytes * _MILLI, count)
            for place in places:
                sums = memory[place]
                sums[0] += requested
                sums[1] += used
                sums[2] += largest
    return _Sums(cpu, memory)


def _places(zones: tuple[ZoneFacts, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Where in the list the zones with CPU stand, and those with memory, by NUMA id."""
    with_cpu = {
        zone.numa_id: place for place, zone in enumerate(zones) if zone.allocatable.cpu_milli > 0
    }
    with_memory = {
        zone.numa_id: place for place, zone in enumerate(zones) if zone.allocatable.memory_bytes > 0
    }
    return with_cpu, with_memory


def _pinned(place_of: dict[int, int], numa_nodes: tuple[int, ...]) -> list[int]:
    if not numa_nodes:
        return []
    return [place_of[each] for each in dict.fromkeys(numa_nodes) if each in place_of]


def _share(amount: int, count: int) -> int:
    return -(-amount // count)
