"""Which alarms have sounded, how often, and which of them are worth a record."""

from __future__ import annotations

import math
from dataclasses import dataclass

from koordlet.decision.names import shown
from koordlet.decision.record import Kind, Record
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.decision.why import Why

STRETCH_GAP_S = 2.0
"""Alarms closer together than this are one stretch of trouble: its beginning is recorded, then
one record each ``TELL_EVERY_S``. Each still wakes the strategies and is counted."""
TELL_EVERY_S = 60.0
_TEXT = {
    WakeKind.PSI: "tasks had to wait for a CPU",
    WakeKind.THROTTLED: "was throttled by its CPU quota",
    WakeKind.USAGE: "latency-sensitive work uses more CPU than the last plan left for it",
    WakeKind.MEMORY: "memory in use has reached the threshold of eviction",
}


@dataclass
class Heard:
    """Alarms of one kind from one source. Times are unix seconds."""

    count: int = 0
    last_time: float = 0.0
    told_time: float = -math.inf
    untold: int = 0


def hear(heard: Heard, wake: Wake, now: float) -> Record | None:
    """Count an alarm. Returns its record, unless it continues one that was recorded before."""
    goes_on = now - heard.last_time < STRETCH_GAP_S and now - heard.told_time < TELL_EVERY_S
    heard.count, heard.last_time = heard.count + 1, now
    if goes_on:
        heard.untold += 1
        return None
    text = _TEXT[wake.kind]
    if heard.untold:
        text += f" ({heard.untold} more times since the last such record)"
    heard.told_time, heard.untold = now, 0
    why = Why(f"alarm.{wake.kind}", text)
    return Record(now, Kind.ALARM, "alarms", why, cgroup=shown(wake.source))
