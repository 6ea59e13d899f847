"""How much of a pod's or an application's memory is cold, as collector ``cold`` has measured."""

from __future__ import annotations

import math

import msgspec

from koordlet.decision import memory_figures as m
from koordlet.decision.metrics import Metric, Reading
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Level

WINDOW_S = 25.0
"""It is told each 10 s; two that are missed still show the last one."""
_SAME_S = 1.0
_KINDS: dict[Level, tuple[Metric, Metric, Metric]] = {
    Level.POD: (m.POD_MEMORY_COLD_PAGE_SIZE, m.POD_MEMORY_COLD_ANON, m.POD_MEMORY_COLD_MAPPED),
    Level.APPLICATION: (
        m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE,
        m.HOST_APPLICATION_MEMORY_COLD_ANON,
        m.HOST_APPLICATION_MEMORY_COLD_MAPPED,
    ),
}


class KnownCold(msgspec.Struct, frozen=True):
    """``size_bytes``: what is left, of which ``asked_bytes`` have been asked for since it was
    measured at ``at`` (as ``Snapshot.now``), ``age_s`` ago."""

    size_bytes: int = 0
    at: float = -math.inf
    age_s: float = 0.0
    asked_bytes: int = 0

    def without(self, size_bytes: int) -> KnownCold:
        asked = self.asked_bytes + size_bytes
        return msgspec.structs.replace(self, asked_bytes=asked)


NO_COLD = KnownCold()


class ColdMemory:
    """Page cache that is cold, and what else is as far as swap is free to take it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._swap_bytes: float | None = None

    def of(self, level: Level, name: str, before: KnownCold) -> KnownCold:
        """``before``: as it was when something was asked for. NO_COLD where nothing is known."""
        if level not in _KINDS:
            return NO_COLD
        file, anon, mapped = (self._read(metric, name) for metric in _KINDS[level])
        known = [each for each in (file, anon, mapped) if each is not None]
        if not known:
            return NO_COLD
        size = file.value if file is not None else 0.0
        for other in (anon, mapped):
            if other is not None:
                size += min(other.value, self._swap())
        age_s = max(each.age_s for each in known)
        at = self._snapshot.now - age_s
        asked = before.asked_bytes if abs(at - before.at) < _SAME_S else 0
        return KnownCold(max(int(size) - asked, 0), at, age_s, asked)

    def _swap(self) -> float:
        if self._swap_bytes is None:
            free = self._read(m.NODE_SWAP_FREE)
            self._swap_bytes = free.value if free is not None else 0.0
        return self._swap_bytes

    def _read(self, metric: Metric, *labels: str) -> Reading | None:
        return self._snapshot.metrics.read(metric, labels, window_s=WINDOW_S)
