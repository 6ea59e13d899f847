"""Reclaim before it hurts, on kernels without watermarks per cgroup (docs/reference/qos.md 5.2, the
``wmark_*`` columns; Linux ``Documentation/admin-guide/cgroup-v2.rst``, ``memory.reclaim``).

Two causes, as the watermarks have them:

- A cgroup above ``wmarkRatio`` percent of what it may use is brought down to
  ``wmarkScalePermill`` per mille of that below. (It reclaims before it has to wait for it.)
- Where less of the node is free than a class with a ``wmarkMinAdj`` above 0 (best-effort) leaves
  to others, that class gives memory back. Whoever is known to have cold memory comes first, the
  most of it first; the largest users give what is missing beyond that.

How much at a time follows from what it costs (``pace.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from koordlet.decision.cgroups import inside
from koordlet.decision.metrics import NODE_MEMORY_USAGE_WITH_PAGE_CACHE
from koordlet.decision.plan import Reclaim
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce, Snapshot
from koordlet.decision.strategy import Level
from koordlet.decision.why import Input, Why
from koordlet.qos.memory_qos.cold import NO_COLD, ColdMemory, KnownCold
from koordlet.qos.memory_qos.high import reading, usage_bytes
from koordlet.qos.memory_qos.pace import (
    FIRST_STEP_BYTES,
    LEAST_STEP_BYTES,
    LONGEST_WAIT_S,
    SOON_S,
    Track,
    Tracks,
    paced,
)

FREE_PERCENT = 2
"""Of the node's memory, which stays free without adjustment: above the kernel's own watermarks,
so that it need not reclaim from everybody."""
AT_ONCE = 4
"""Most cgroups in one decision, the largest users first: a worker reclaims from one at a time."""


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


class Taken(msgspec.Struct, frozen=True):
    reclaims: tuple[Reclaim, ...]
    tracks: Tracks
    notes: tuple[Why, ...]


class _Due(NamedTuple):
    """A candidate with a cause. ``excess_bytes``: what it has above its own watermark."""

    candidate: Candidate
    used_bytes: int
    excess_bytes: int
    cold: KnownCold

    def share_bytes(self, missing_bytes: int) -> int:
        """Of what the node misses. Who has cold memory is asked for no more than that."""
        return min(missing_bytes, self.cold.size_bytes) if self.cold.size_bytes else missing_bytes


def decide(snapshot: Snapshot, candidates: Iterable[Candidate], before: Tracks) -> Taken:
    """What to reclaim now."""
    found = tuple(candidates)
    missing = _missing_bytes(snapshot, found)
    known = _remembered(snapshot.now, found, before)
    after = dict(known)
    page_bytes = snapshot.node.rules.page_bytes  # the kernel takes whole ones
    reclaims: list[Reclaim] = []
    notes: list[Why] = []
    for due in _ranked(snapshot, found, missing, known):
        candidate, rest = due.candidate, missing.get(due.candidate.gives_way, 0)
        share = due.share_bytes(rest)
        wanted = min(max(due.excess_bytes, share), due.used_bytes - candidate.kept_bytes)
        # A container and its pod are the same memory: what comes of one is seen before the other.
        overlaps = any(_overlap(candidate, each) for each in reclaims)
        if wanted < page_bytes or len(reclaims) == AT_ONCE or overlaps:
            continue
        now = reading(snapshot.in_force, candidate.cgroup, due.used_bytes, page_bytes)
        track = paced(snapshot.now, now, known.get(candidate.cgroup), wanted)
        size = track.asked_bytes
        after[candidate.cgroup] = msgspec.structs.replace(track, cold=due.cold.without(size))
        if size:
            short = share > due.excess_bytes
            why = _node_is_short(due, rest) if short else _too_full(candidate, due.used_bytes)
            reclaims.append(Reclaim(candidate.cgroup, size, why))
        elif track.wait_s:
            notes.append(_nothing_left(candidate))
        all_cold = min(share, wanted)
        booked = max(size, all_cold) if _gives_all_its_cold(due, track) else size
        missing = {adjust: max(left - booked, 0) for adjust, left in missing.items()}
    return Taken(tuple(reclaims), after, tuple(notes))


def _remembered(now: float, found: tuple[Candidate, ...], before: Tracks) -> Tracks:
    """Tracks of those that are there, also while they have no cause or others come first: what was
    taken may still come back, and steps go on as large as they were."""
    return {
        each.cgroup: track
        for each in found
        if (track := before.get(each.cgroup)) is not None
        and now < max(track.at + SOON_S, track.until, track.doubted_until)
    }


def _ranked(
    snapshot: Snapshot, found: tuple[Candidate, ...], missing: dict[int, int], known: Tracks
) -> list[_Due]:
    """Those with a cause: first the most cold memory, then the largest users."""
    measured, due = ColdMemory(snapshot), []
    for each in found:
        gives_way = missing.get(each.gives_way, 0) > 0
        if not gives_way and not _is_too_full(snapshot.in_force, each):
            continue
        used = usage_bytes(snapshot.in_force, each.cgroup) or 0
        cold = _cold(snapshot, measured, each, known) if gives_way else NO_COLD
        due.append(_Due(each, used, _excess_bytes(each, used), cold))
    return sorted(due, key=lambda d: (-d.cold.size_bytes, -d.used_bytes, d.candidate.cgroup))


def _cold(snapshot: Snapshot, measured: ColdMemory, each: Candidate, known: Tracks) -> KnownCold:
    """What is measured as cold, if it is worth a step and nothing says otherwise."""
    track = known.get(each.cgroup)
    if track is not None and snapshot.now < track.doubted_until:
        return NO_COLD
    cold = measured.of(each.level, each.name, track.cold if track is not None else NO_COLD)
    return cold if cold.size_bytes >= LEAST_STEP_BYTES else NO_COLD


def _gives_all_its_cold(due: _Due, track: Track) -> bool:
    """Whether nobody else need give what is cold there. Not while it gives nothing, or so slowly
    that the node would wait for it."""
    return (
        due.cold.size_bytes > 0 and track.asked_bytes > 0 and track.step_bytes >= FIRST_STEP_BYTES
    )


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


def _node_is_short(due: _Due, missing_bytes: int) -> Why:
    candidate, cold = due.candidate, due.cold
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


def _mib(size_bytes: int) -> int:
    return size_bytes >> 20
