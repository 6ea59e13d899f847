"""How much to ask of one cgroup at a time: it follows from what the last step cost.

What comes back soon (refaults), and the waiting of its own tasks for memory, halve the step;
without both it doubles. Where nothing can be reclaimed the next attempt waits, twice as long each
time.
"""

from __future__ import annotations

import msgspec

from koordlet.qos.memory_qos.cold import NO_COLD, KnownCold
from koordlet.qos.memory_qos.high import MemoryReading, stalled_share

FIRST_STEP_BYTES = 16 << 20
LEAST_STEP_BYTES = 1 << 20
MOST_STEP_BYTES = 256 << 20
HURT_SHARE = 0.1
"""A cgroup that waits for memory this share of the time has no cold memory left."""
REFAULT_SHARE = 0.5
"""Half of what was asked for came back: it was in use."""
PROGRESS_SHARE = 0.25
"""With less of what was asked for the step was too large for the time that a request has: a disk
may be slow. With less than the least step there is nothing that could be reclaimed."""
LONGEST_WAIT_S = 64.0
SOON_S = 10.0
"""What comes back within this time was in use. Later it says nothing, and steps begin anew."""
DOUBT_S = 600.0
"""Where memory came back, its owner gives like any other for so long, whatever is measured as
cold. (Page cache that is hot by ``read(2)`` alone passes for cold with MGLRU.)"""


class Track(msgspec.Struct, frozen=True):
    """What is remembered of a cgroup that memory is taken back from. ``asked_bytes``: how much was
    asked for ``at`` that time. ``wait_s``: how long it was left alone after the last attempt that
    gave nothing; ``until``: the end of that. ``cold``: what is left of its cold memory, as measured
    last. ``doubted_until``: it hurt, so what is measured as cold does not count until then."""

    at: float
    reading: MemoryReading
    step_bytes: int = FIRST_STEP_BYTES
    asked_bytes: int = 0
    wait_s: float = 0.0
    until: float = 0.0
    cold: KnownCold = NO_COLD
    doubted_until: float = 0.0


Tracks = dict[str, Track]


def paced(now: float, read: MemoryReading, before: Track | None, wanted_bytes: int) -> Track:
    """With how much to ask for now: nothing while the last step hurts or gave nothing."""
    if before is None:
        return Track(now, read, asked_bytes=min(wanted_bytes, FIRST_STEP_BYTES))
    looked = msgspec.structs.replace(before, at=now, reading=read, asked_bytes=0)
    step, wait_s = before.step_bytes, before.wait_s
    if now < before.until:
        return looked
    if now - before.at >= SOON_S:
        step = FIRST_STEP_BYTES
    elif _hurts(now, read, before):
        less = max(step // 2, LEAST_STEP_BYTES)
        return msgspec.structs.replace(looked, step_bytes=less, doubted_until=now + DOUBT_S)
    elif before.asked_bytes:
        last = before.reading
        given = max(read.stolen_bytes - last.stolen_bytes, last.usage_bytes - read.usage_bytes)
        enough = before.asked_bytes * PROGRESS_SHARE
        if given < min(enough, LEAST_STEP_BYTES):
            wait_s = min(max(wait_s * 2, 1.0), LONGEST_WAIT_S)
            return msgspec.structs.replace(
                looked, step_bytes=LEAST_STEP_BYTES, wait_s=wait_s, until=now + wait_s
            )
        step = min(step * 2, MOST_STEP_BYTES) if given >= enough else given
        wait_s = 0.0
    size = min(wanted_bytes, step)
    return msgspec.structs.replace(looked, step_bytes=step, asked_bytes=size, wait_s=wait_s)


def _hurts(now: float, read: MemoryReading, before: Track) -> bool:
    """What was asked for came back, or its tasks wait for memory."""
    share = stalled_share(before.reading.stall_us, read.stall_us, now - before.at)
    refaults = read.refault_bytes - before.reading.refault_bytes
    asked = max(before.asked_bytes, LEAST_STEP_BYTES)
    return (share is not None and share >= HURT_SHARE) or refaults >= asked * REFAULT_SHARE
