"""Reclaim before it hurts, on kernels without watermarks per cgroup (spec/qos.md 5.2, the
``wmark_*`` columns; Linux ``Documentation/admin-guide/cgroup-v2.rst``, ``memory.reclaim``).

Two causes, as the watermarks have them:

- A cgroup above ``wmarkRatio`` percent of what it may use is brought down to
  ``wmarkScalePermill`` per mille of that below. (It reclaims before it has to wait for it.)
- Where less of the node is free than a class with a ``wmarkMinAdj`` above 0 (best-effort) leaves
  to others, that class gives memory back. Whoever is known to have cold memory comes first, the
  most of it first; the largest users give what is missing beyond that.

How much at a time follows from what it costs: what comes back soon (refaults), and the waiting of
its own tasks for memory, halve the step; without both it doubles. Where nothing can be reclaimed
the next attempt waits, twice as long each time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlet.decision.cgroups import inside
from koordlet.decision.metrics import NODE_MEMORY_USAGE_WITH_PAGE_CACHE
from koordlet.decision.plan import Reclaim
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce, Snapshot
from koordlet.decision.strategy import Level
from koordlet.decision.why import Input, Why
from koordlet.qos.memory_qos.cold import NO_COLD, Cold, ColdMemory
from koordlet.qos.memory_qos.high import MemoryReading, reading, stalled_share, usage_bytes

FREE_PERCENT = 2
"""Of the node's memory, which stays free without adjustment: above the kernel's own watermarks,
so that it need not reclaim from everybody."""
FIRST_STEP_BYTES = 16 << 20
LEAST_STEP_BYTES = 1 << 20
MOST_STEP_BYTES = 256 << 20
AT_ONCE = 4
"""Most cgroups in one decision, the largest users first: a worker reclaims from one at a time."""
HURT_SHARE = 0.1
"""A cgroup that waits for memory this share of the time has no cold memory left."""
REFAULT_SHARE = 0.5
"""Half of what was asked for came back: it was in use."""
PROGRESS_SHARE = 0.25
"""With less of what was asked for the step was too large for the time that a request has: a disk
may be slow. With less than the least step there is nothing that could be reclaimed."""
LONGEST_WAIT_S = 64.0


class Candidate(msgspec.Struct, frozen=True):
    """One cgroup. ``name``: uid of a pod, name of an application. ``bound_bytes``: what it may use,
    0 for no bound. ``kept_bytes``: its floor.
    ``gives_way``: percent by which it leaves more free than others, 0 for not at all."""

    cgroup: str
    title: str
    level: Level
    name: str
    bound_bytes: int
    kept_bytes: int
    ratio: int
    scale_permill: int
    gives_way: int


class Track(msgspec.Struct, frozen=True):
    """What is remembered of a cgroup that memory is taken back from. ``wait_s``: how long it was
    left alone after the last attempt that gave nothing; ``until``: the end of that. ``cold``: what
    is left of its cold memory, as measured last."""

    at: float
    reading: MemoryReading
    step_bytes: int = FIRST_STEP_BYTES
    asked_bytes: int = 0
    wait_s: float = 0.0
    until: float = 0.0
    cold: Cold = NO_COLD


Tracks = dict[str, Track]


class Taken(msgspec.Struct, frozen=True):
    reclaims: tuple[Reclaim, ...]
    tracks: Tracks
    notes: tuple[Why, ...]


def decide(snapshot: Snapshot, candidates: Iterable[Candidate], before: Tracks) -> Taken:
    """What to reclaim now. Cgroups without a cause are forgotten."""
    found = tuple(candidates)
    missing = _missing_bytes(snapshot, found)
    used: dict[str, int] = {}
    for each in found:
        if missing.get(each.gives_way) or _is_too_full(snapshot.in_force, each):
            used[each.cgroup] = usage_bytes(snapshot.in_force, each.cgroup) or 0
    cold = _cold(snapshot, (each for each in found if missing.get(each.gives_way)), before)
    reclaims: list[Reclaim] = []
    notes: list[Why] = []
    after: Tracks = {}
    asked = [each for each in found if used.get(each.cgroup)]

    def rank(each: Candidate) -> tuple[int, int, str]:
        return -cold.get(each.cgroup, NO_COLD).size_bytes, -used[each.cgroup], each.cgroup

    for candidate in sorted(asked, key=rank):
        usage, known = used[candidate.cgroup], cold.get(candidate.cgroup, NO_COLD)
        excess, rest = _excess_bytes(candidate, usage), missing.get(candidate.gives_way, 0)
        share = min(rest, known.size_bytes) if known.size_bytes else rest
        wanted = min(max(excess, share), usage - candidate.kept_bytes)
        # The kernel takes whole pages.
        if wanted < snapshot.node.rules.page_bytes or candidate.cgroup in after:
            continue
        # A container and its pod are the same memory: what comes of one is seen before the other.
        if len(reclaims) == AT_ONCE or any(_overlap(candidate, each) for each in reclaims):
            if candidate.cgroup in before:
                after[candidate.cgroup] = before[candidate.cgroup]
            continue
        now = reading(snapshot.in_force, candidate.cgroup, usage, snapshot.node.rules.page_bytes)
        track, size = _paced(snapshot.now, now, before.get(candidate.cgroup), wanted)
        after[candidate.cgroup] = msgspec.structs.replace(track, cold=known.without(size))
        given = size
        if size:
            short = share > excess
            why = _node_is_short(candidate, rest, known) if short else _too_full(candidate, usage)
            reclaims.append(Reclaim(candidate.cgroup, size, why))
            # All that is cold will be had from it, so that nobody else need give that much.
            given = max(size, share) if known.size_bytes else size
        elif track.wait_s:
            notes.append(_nothing_left(candidate))
        missing = {adjust: max(left - given, 0) for adjust, left in missing.items()}
    return Taken(tuple(reclaims), after, tuple(notes))


def _cold(snapshot: Snapshot, found: Iterable[Candidate], before: Tracks) -> dict[str, Cold]:
    """What is known to be cold and worth a step, by cgroup."""
    measured, cold = ColdMemory(snapshot), {}
    for each in found:
        track = before.get(each.cgroup)
        known = measured.of(each.level, each.name, track.cold if track is not None else NO_COLD)
        if known.size_bytes >= LEAST_STEP_BYTES:
            cold[each.cgroup] = known
    return cold


def _overlap(candidate: Candidate, asked: Reclaim) -> bool:
    one, other = candidate.cgroup, asked.cgroup
    return inside(one, other) or inside(other, one)


def _missing_bytes(snapshot: Snapshot, candidates: tuple[Candidate, ...]) -> dict[int, int]:
    """Adjustment -> bytes of the node that should be free and are not. Empty without a sample."""
    used = snapshot.metrics.read(
        NODE_MEMORY_USAGE_WITH_PAGE_CACHE, window_s=2 * snapshot.collect_interval_s
    )
    total = snapshot.node.memory_bytes
    if used is None or not 0 <= used.value <= total:
        return {}
    free = total - int(used.value)
    levels = {candidate.gives_way for candidate in candidates if candidate.gives_way > 0}
    return {adjust: max(free_target_bytes(total, adjust) - free, 0) for adjust in levels}


def free_target_bytes(total_bytes: int, adjust_percent: int) -> int:
    return total_bytes * FREE_PERCENT * (100 + adjust_percent) // 10_000


def _is_too_full(in_force: InForce, candidate: Candidate) -> bool:
    high = _high_watermark_bytes(candidate)
    return high > 0 and in_force.reaches(candidate.cgroup, Resource.MEMORY_USAGE, high + 1)


def _high_watermark_bytes(candidate: Candidate) -> int:
    return candidate.bound_bytes * candidate.ratio // 100


def _low_watermark_bytes(candidate: Candidate) -> int:
    high = _high_watermark_bytes(candidate)
    return max(high - candidate.bound_bytes * candidate.scale_permill // 1000, 0)


def _excess_bytes(candidate: Candidate, used_bytes: int) -> int:
    """0 up to the high watermark, then what is above the low one."""
    high = _high_watermark_bytes(candidate)
    return used_bytes - _low_watermark_bytes(candidate) if 0 < high < used_bytes else 0


def _too_full(candidate: Candidate, used_bytes: int) -> Why:
    text = (
        f"{candidate.title} uses {_mib(used_bytes)} of {_mib(candidate.bound_bytes)} MiB, above "
        f"{candidate.ratio} %; it is reclaimed down to {_mib(_low_watermark_bytes(candidate))} MiB "
        "before its tasks have to wait"
    )
    facts = (
        Input("usage", used_bytes, "bytes"),
        Input("bound", candidate.bound_bytes, "bytes"),
        Input("wmarkRatio", candidate.ratio, "%"),
        Input("wmarkScalePermill", candidate.scale_permill, "per mille"),
    )
    return Why("memory-qos.watermark", text, facts)


def _node_is_short(candidate: Candidate, missing_bytes: int, cold: Cold) -> Why:
    text = (
        f"the node has {_mib(missing_bytes)} MiB less free memory than it should; "
        f"{candidate.title} gives memory back first"
    )
    facts: tuple[Input, ...] = (
        Input("missing", missing_bytes, "bytes"),
        Input("wmarkMinAdj", candidate.gives_way, "%"),
    )
    if cold.size_bytes:
        text += f", since {_mib(cold.size_bytes)} MiB of it are cold"
        facts = (*facts, Input("cold", cold.size_bytes, "bytes", age_s=cold.age_s))
    return Why("memory-qos.node-short", text, facts)


def _nothing_left(candidate: Candidate) -> Why:
    text = (
        f"{candidate.title} should give memory back, but nothing can be reclaimed from it; "
        f"koordlet tries again after {LONGEST_WAIT_S:g} s at most"
    )
    return Why("memory-qos.not-reclaimable", text)


def _paced(
    now: float, read: MemoryReading, before: Track | None, wanted_bytes: int
) -> tuple[Track, int]:
    """The next step, and how much to ask for: nothing while the last one hurts or gave nothing."""
    if before is None:
        size = min(wanted_bytes, FIRST_STEP_BYTES)
        return Track(now, read, asked_bytes=size), size
    last = before.reading
    step, wait_s = before.step_bytes, before.wait_s
    if now < before.until:
        return Track(now, read, step, 0, wait_s, before.until), 0
    share = stalled_share(last.stall_us, read.stall_us, now - before.at)
    refaults = read.refault_bytes - last.refault_bytes
    hurt = (share is not None and share >= HURT_SHARE) or (
        refaults >= max(before.asked_bytes, LEAST_STEP_BYTES) * REFAULT_SHARE
    )
    if hurt:
        return Track(now, read, max(step // 2, LEAST_STEP_BYTES), wait_s=wait_s), 0
    if before.asked_bytes:
        given = max(read.stolen_bytes - last.stolen_bytes, last.usage_bytes - read.usage_bytes)
        enough = before.asked_bytes * PROGRESS_SHARE
        if given < min(enough, LEAST_STEP_BYTES):
            wait_s = min(max(wait_s * 2, 1.0), LONGEST_WAIT_S)
            return Track(now, read, LEAST_STEP_BYTES, 0, wait_s, now + wait_s), 0
        step = min(step * 2, MOST_STEP_BYTES) if given >= enough else given
        wait_s = 0.0
    size = min(wanted_bytes, step)
    return Track(now, read, step, size, wait_s), size


def _mib(size_bytes: int) -> int:
    return size_bytes >> 20
