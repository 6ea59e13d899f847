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
from koordlet.qos.interference.cpi2 import Cpi, Window, best_suspect, judge
from koordlet.qos.interference.windows import Antagonist, Who

RESOURCE = "cpi"
WINDOWS = 10
_FIRST_LOOK_S = 12.0
_KEPT_INTERVALS = 3
"""After so many without a window what is known of a victim is old."""
_USE_S = 10.0


class Victim(msgspec.Struct, frozen=True):
    """A container. ``sampled``: unix time of its newest window. ``interval_s``: the shortest time
    between two, 0 while there was one. ``windows``: the oldest first. ``suspect``: whose use goes
    best with its outliers, and how far; None while it has none."""

    pod: Who
    sampled: float = 0.0
    interval_s: float = 0.0
    cpi: Cpi = Cpi()
    windows: tuple[Window, ...] = ()
    suspect: tuple[Who, float] | None = None


class Known(msgspec.Struct, frozen=True):
    """``looked``: when the store was last asked, unix time. ``victims``: by id of the container."""

    looked: float = 0.0
    victims: dict[str, Victim] = {}


def look(snapshot: Snapshot, known: Known) -> Known:
    """Takes the windows that are new. Containers that are gone, or no longer measured, are left
    out."""
    # Each look asks for what came since the one before: intervals may be long, and few machines
    # count cycles.
    since_s = min(max(snapshot.time - known.looked, 0.0) + 1.0, _FIRST_LOOK_S)
    new = snapshot.metrics.newest(CONTAINER_CYCLES_PER_INSTRUCTION, window_s=since_s)
    if not new and not known.victims:
        return Known(snapshot.time)
    use: Mapping[Who, float] | None = None
    victims: dict[str, Victim] = {}
    for pod in snapshot.pods:
        if pod.is_best_effort or not pod.is_active:
            continue
        for container in pod.containers:
            before = known.victims.get(container.id, Victim(Who("pod", pod.uid)))
            reading = new.get((pod.uid, container.id))
            if reading is not None and snapshot.time - reading.age_s > before.sampled + 0.001:
                use = _use_of_suspects(snapshot) if use is None else use
                window = Window(reading.value, use)
                victims[container.id] = _judged(before, snapshot.time - reading.age_s, window)
            elif before.sampled and not _is_old(before, snapshot.time):
                victims[container.id] = before
    return Known(snapshot.time, victims)


def antagonists(known: Known, before: Known) -> tuple[Antagonist, ...]:
    """One of each victim: of a pod's containers, the worst counts. ``before``: at the last
    decision."""
    found: dict[tuple[Who, Who], Antagonist] = {}
    for container, victim in sorted(known.victims.items()):
        if victim.suspect is None:
            continue
        culprit, share = victim.suspect
        last = before.victims.get(container)
        is_new = last is None or last.sampled != victim.sampled
        pair = victim.pod, culprit
        other = found.get(pair)
        harms = is_new and victim.cpi.bad[0]
        if other is not None:
            share, harms = max(share, other.share), harms or other.harms
        found[pair] = Antagonist(RESOURCE, *pair, share, harms)
    return tuple(found.values())


def victim_of(antagonist: Antagonist, known: Known) -> Victim:
    """The container whose cycles made it one. Raises KeyError where it is none."""
    suspect = antagonist.culprit, antagonist.share
    for _, victim in sorted(known.victims.items()):
        if victim.pod == antagonist.victim and victim.suspect == suspect:
            return victim
    raise KeyError(antagonist)


def _judged(before: Victim, sampled: float, window: Window) -> Victim:
    interval_s = sampled - before.sampled if before.sampled else 0.0
    if before.interval_s:
        interval_s = min(interval_s, before.interval_s)
    cpi = judge(before.cpi, window.cpi)
    windows = (*before.windows, window)[-WINDOWS:]
    suspect = best_suspect(windows, cpi.limit) if cpi.is_outlier else None
    return Victim(before.pod, sampled, interval_s, cpi, windows, suspect)


def _is_old(victim: Victim, time: float) -> bool:
    return 0 < victim.interval_s * _KEPT_INTERVALS < time - victim.sampled


def _use_of_suspects(snapshot: Snapshot) -> Mapping[Who, float]:
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
