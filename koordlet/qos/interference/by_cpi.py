"""Antagonists that no matrix of waits shows: they use up caches and memory bandwidth. Where the
machine counts cycles, the rule of CPI2 (``cpi2``) says who."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.metrics import (
    CONTAINER_CYCLES_PER_INSTRUCTION,
    POD_CPU_USAGE,
    Aggregate,
)
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.qos.interference.cpi2 import SUSPECT_FROM, Cpi, correlation, judge
from koordlet.qos.interference.windows import Who

RESOURCE = "cpi"
OLDEST_S = 90.0
"""CPI is measured once a minute."""
WINDOWS = 10
_USE_S = 10.0


class Window(msgspec.Struct, frozen=True):
    """``use``: cores of the suspects meanwhile."""

    cpi: float
    use: Mapping[Who, float]


class Victim(msgspec.Struct, frozen=True):
    """A container. ``sampled``: unix time of its newest window. ``windows``: the oldest first."""

    pod: Who
    sampled: float = 0.0
    cpi: Cpi = Cpi()
    windows: tuple[Window, ...] = ()

    def suspects(self) -> dict[Who, float]:
        """Whose use goes with its outliers, and how far; nobody while it has none."""
        if not self.cpi.is_outlier:
            return {}
        values = [window.cpi for window in self.windows]
        found = {}
        for who in {who for window in self.windows for who in window.use}:
            use = [window.use.get(who, 0.0) for window in self.windows]
            found[who] = correlation(values, use, self.cpi.limit)
        return {who: value for who, value in found.items() if value >= SUSPECT_FROM}


def look(snapshot: Snapshot, known: Mapping[str, Victim]) -> dict[str, Victim]:
    """By id of the container; those that are no longer measured are left out."""
    found: dict[str, Victim] = {}
    if not snapshot.metrics.newest(CONTAINER_CYCLES_PER_INSTRUCTION, window_s=OLDEST_S):
        return found  # few machines count cycles, and this is asked at each tick
    use: dict[Who, float] | None = None
    for pod in snapshot.pods:
        if pod.is_best_effort or not pod.is_active:
            continue
        for container in pod.containers:
            reading = snapshot.metrics.read(
                CONTAINER_CYCLES_PER_INSTRUCTION, (pod.uid, container.id), window_s=OLDEST_S
            )
            if reading is None:
                continue
            before = known.get(container.id, Victim(Who("pod", pod.uid)))
            sampled = snapshot.time - reading.age_s
            if sampled <= before.sampled + 0.001:
                found[container.id] = before
                continue
            use = _use_of_suspects(snapshot) if use is None else use
            windows = (*before.windows, Window(reading.value, use))[-WINDOWS:]
            found[container.id] = Victim(
                before.pod, sampled, judge(before.cpi, reading.value), windows
            )
    return found


def antagonists(victims: Mapping[str, Victim]) -> dict[tuple[Who, Who], float]:
    """Victim and culprit, with the correlation; the strongest of a pod's containers."""
    found: dict[tuple[Who, Who], float] = {}
    for victim in victims.values():
        for culprit, value in victim.suspects().items():
            pair = victim.pod, culprit
            found[pair] = max(found.get(pair, 0.0), value)
    return found


def _use_of_suspects(snapshot: Snapshot) -> dict[Who, float]:
    """Best-effort pods alone: others are not held back anyway."""
    found = {}
    for pod in filter(_is_suspect, snapshot.pods):
        reading = snapshot.metrics.read(
            POD_CPU_USAGE, (pod.uid,), window_s=_USE_S, aggregate=Aggregate.AVG
        )
        if reading is not None:
            found[Who("pod", pod.uid)] = reading.value
    return found


def _is_suspect(pod: Pod) -> bool:
    return pod.is_best_effort and pod.is_active
