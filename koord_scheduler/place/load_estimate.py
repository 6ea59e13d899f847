"""How much a pod will use, before a report says what it does (docs/reference/central.md 2.2)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.texts import decoded
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
)

FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
SECONDS_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
SECONDS_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
LEAST_CPU_MILLI = 250
LEAST_MEMORY_BYTES = 200 << 20
_LEAST = {
    CPU: LEAST_CPU_MILLI,
    BATCH_CPU: LEAST_CPU_MILLI,
    MEMORY: LEAST_MEMORY_BYTES,
    BATCH_MEMORY: LEAST_MEMORY_BYTES,
}
"""What a pod that asks for nothing will use; a mid pod without mid resources uses none."""
_TRANSLATED: Mapping[PriorityClass, Mapping[str, str]] = {
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
    PriorityClass.FREE: {},
}
_MOST_KEPT = 65_536
_MOST_PERCENT = 1_000
"""Of what a pod asks for, as its annotation may say; arguments go up to 100."""
_percents = msgspec.json.Decoder(dict[str, int])


class Estimates:
    """``names``: of the vector. ``custom``: annotations of pods count."""

    def __init__(self, names: tuple[str, ...], factors: Mapping[str, int], *, custom: bool) -> None:
        self._names, self._factors, self._custom = names, factors, custom
        self._kept: dict[int, Ints] = {}

    def of(self, pod: PodClass) -> Ints:
        """In the order of the names. Nobody may change it."""
        found = self._kept.get(pod.number)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            factors = {**self._factors, **(self._own_factors(pod) if self._custom else {})}
            found = np.array([estimate(pod, name, factors) for name in self._names], np.int64)
            self._kept[pod.number] = found
        return found

    def forget(self) -> None:
        """Numbers of classes may stand for others from now on."""
        self._kept.clear()

    def seconds(
        self, pod: PodClass, after_scheduled: int, after_initialized: int
    ) -> tuple[float, float]:
        """For how long the estimate of a pod counts: after it got its node, and after its init
        containers ended. ``after_...``: those of the arguments."""
        if not self._custom:
            return after_scheduled, after_initialized
        return (
            _seconds(pod.annotations.get(SECONDS_SCHEDULED), after_scheduled),
            _seconds(pod.annotations.get(SECONDS_INITIALIZED), after_initialized),
        )

    def _own_factors(self, pod: PodClass) -> Mapping[str, int]:
        found = decoded(_percents, pod.annotations.get(FACTORS)) or {}
        return {name: percent for name, percent in found.items() if 0 <= percent <= _MOST_PERCENT}


def estimate(pod: PodClass, name: str, factors: Mapping[str, int]) -> int:
    """Of one resource; 0 for one without a factor."""
    factor = factors.get(name)
    if factor is None:
        return 0
    asked = name
    names = _TRANSLATED.get(pod.priority_class) if pod.priority_class is not None else None
    if names is not None:
        if name not in names:
            return 0
        asked = names[name]
    limit = pod.limits.get(asked, 0)
    most = max(limit, pod.requests.get(asked, 0))
    if not most:
        return _LEAST.get(asked, 0)
    found = (2 * most * factor + 100) // 200
    return min(found, limit) if limit else found


def _seconds(text: str | None, default: int) -> float:
    if text is None:
        return default
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else default
