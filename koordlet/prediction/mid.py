"""What the node could offer to mid-priority pods: the manager's formula
(docs/reference/central.md 1.5)."""

from __future__ import annotations

from typing import NamedTuple

from koordlet.prediction.reclaimable import Amounts, less, plus, smaller
from koordlet.protocol.colocation import COLOCATION_DEFAULTS, ColocationStrategy


class Machine(NamedTuple):
    """``used``: by the whole node, None where it is not known. ``reserved``: the largest of what
    kubelet and the annotation reserve, and what the system and production applications use.
    ``requested``: by running and pending pods that are not mid, batch or free."""

    capacity: Amounts
    used: Amounts | None
    reserved: Amounts
    requested: Amounts


def mid(
    machine: Machine,
    reclaimable: Amounts | None,
    strategy: ColocationStrategy = COLOCATION_DEFAULTS,
) -> Amounts:
    """``reclaimable``: of production; None where nothing could be predicted counts as 0."""
    capacity = machine.capacity
    most = _percent(
        capacity, strategy.mid_cpu_threshold_percent, strategy.mid_memory_threshold_percent
    )
    if strategy.mid_reclaim_mode == "static":
        reserved = _percent(
            capacity,
            strategy.mid_static_cpu_reserved_percent,
            strategy.mid_static_memory_reserved_percent,
        )
        return smaller(reserved, most)
    unused = less(capacity, machine.used) if machine.used is not None else Amounts()
    unallocated = less(less(capacity, machine.reserved), machine.requested)
    share = strategy.mid_unallocated_percent
    found = plus(smaller(reclaimable or Amounts(), unused), _percent(unallocated, share, share))
    return smaller(found, most)


def _percent(amounts: Amounts, cpu: int | None, memory: int | None) -> Amounts:
    return Amounts(
        amounts.cpu_milli * (cpu or 0) // 100, amounts.memory_bytes * (memory or 0) // 100
    )
