"""Which pods go first (docs/reference/central.md 10.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from koord_scheduler.balance.world import Amounts, Resident
from koordlet.protocol.qos import PriorityClass, QoSClass

_CLASS = {
    PriorityClass.FREE: 1,
    PriorityClass.BATCH: 2,
    PriorityClass.MID: 3,
    PriorityClass.PROD: 4,
    None: 5,
}
_KUBE = {"BestEffort": 1, "Burstable": 2, "Guaranteed": 3}
_QOS = {QoSClass.BE: 1, QoSClass.LS: 2, QoSClass.LSR: 3, QoSClass.LSE: 4, QoSClass.SYSTEM: 4}


def order_key(resident: Resident, extra: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The smaller the sooner it goes. ``extra`` decides before the creation time does."""
    pod, cls, details = resident.pod, resident.pod.cls, resident.details
    return (
        _CLASS[cls.priority_class],
        cls.priority,
        _KUBE.get(cls.kube_qos, 2),
        _QOS[cls.qos],
        details.deletion_cost,
        details.eviction_cost,
        extra,
        -pod.created_s,
        pod.key,
    )


def usage_score(usage: Amounts, excess: Amounts, weights: Mapping[str, float]) -> float:
    """How well a pod of this usage covers the excess: best where it just does. ``weights`` name
    the resources that count."""
    total, result = 0.0, 0.0
    for name, weight in weights.items():
        total += weight
        if excess.get(name, 0) > 0:
            ratio = usage.get(name, 0) / excess[name]
            result += weight * (ratio if ratio < 1 else 1 + 1 / ratio)
    return result / total if total else 0.0


def by_usage(
    residents: Iterable[Resident],
    usage: Callable[[Resident], Amounts | None],
    excess: Amounts,
    weights: Mapping[str, float],
) -> list[Resident]:
    """LowNodeLoad's order: of alike pods the one with the larger score first, and those without a
    report last."""

    def key(resident: Resident) -> tuple[Any, ...]:
        used = usage(resident)
        extra = (1, 0.0) if used is None else (0, -usage_score(used, excess, weights))
        return order_key(resident, extra)

    return sorted(residents, key=key)
