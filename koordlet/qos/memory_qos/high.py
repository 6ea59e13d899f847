"""The watch over ``memory.high``: a cgroup that cannot get below it gets more room.

Where nothing can be reclaimed (anonymous memory without swap), the kernel slows every allocation
above ``memory.high`` down, by up to 2 s each: the work neither goes on nor is killed. Whether it
is so is told by its usage, which sits at the limit, and by its memory pressure, which stays.
"""

from __future__ import annotations

import math

import msgspec

from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import InForce, Snapshot

PINNED_SHARE = 0.98
"""A cgroup that uses this share of its limit is at the limit."""
STUCK_SHARE = 0.4
"""A cgroup at its limit that waits for memory this share of the time makes no progress."""
CALM_SHARE = 0.05
STUCK_S = 5.0
"""How long it must be stuck before it gets more."""
CALM_S = 60.0
"""How long it must be calm before some of that is taken back."""
STEP_PERCENT = 10
"""Size of a step: up, of what it had or uses; back, of what the QoS asks for."""


class Watched(msgspec.Struct, frozen=True):
    """One cgroup with a ``memory.high`` of ours. ``raised_bytes``: above what the QoS asks for.
    ``stall_us`` None: not looked at. ``since``: when it got stuck, or calm (``is_stuck`` tells
    which); None: neither."""

    at: float
    stall_us: int | None
    raised_bytes: int = 0
    since: float | None = None
    is_stuck: bool = False


class Watch(msgspec.Struct, frozen=True):
    """``limit_bytes``: the ``memory.high`` to set, UNLIMITED for none. ``change``: a sentence where
    it has just changed."""

    limit_bytes: int
    watched: Watched
    change: str = ""


def watch(
    in_force: InForce,
    cgroup: str,
    wanted_bytes: int,
    now: float,
    before: Watched | None,
    page_bytes: int,
) -> Watch:
    """``wanted_bytes``: what the QoS asks for; above what is there, nothing is limited."""
    if before is not None:
        raised = before.raised_bytes
    else:
        raised = _raised_before(in_force, cgroup, wanted_bytes, page_bytes)
    limit = wanted_bytes + raised
    pinned = in_force.reaches(cgroup, Resource.MEMORY_USAGE, _pinned_bytes(limit))
    if not (pinned or raised):
        return Watch(limit, Watched(now, None))  # as most are, and not worth another file
    used = usage_bytes(in_force, cgroup)
    stall = stall_us(in_force, cgroup)
    if before is None:
        return Watch(limit, Watched(now, stall, raised))
    share = stalled_share(before.stall_us, stall, now - before.at)
    stuck = pinned and share is not None and share >= STUCK_SHARE
    calm = raised > 0 and share is not None and share < CALM_SHARE
    same = before.since is not None and before.is_stuck == stuck and (stuck or calm)
    since = (before.since if same else now) if stuck or calm else None
    after = Watched(now, stall, raised, since, stuck)
    lasted_s = now - since if since is not None else 0.0
    if stuck and lasted_s >= STUCK_S:
        # What it still uses cannot be taken from it, however far above the limit that is.
        least = max(limit, (used or 0) // page_bytes * page_bytes)
        raised = least + _step(least, page_bytes) - wanted_bytes
        change = (
            f"for {STUCK_S:g} s it used all that it may without being throttled, and waited for "
            f"memory {share or 0:.0%} of the time"
        )
    elif calm and lasted_s >= CALM_S:
        raised = max(raised - _step(wanted_bytes, page_bytes), 0)
        change = f"no pressure for {CALM_S:g} s"
    else:
        return Watch(limit, after)
    after = msgspec.structs.replace(after, raised_bytes=raised, since=None)
    return Watch(wanted_bytes + raised, after, change)


def _pinned_bytes(limit_bytes: int) -> int:
    """The least usage that is at the limit."""
    return math.ceil(limit_bytes * PINNED_SHARE)


def _raised_before(in_force: InForce, cgroup: str, wanted_bytes: int, page_bytes: int) -> int:
    """What an earlier run of the daemon gave it, if it would be stuck again without that."""
    if not in_force.reaches(cgroup, Resource.MEMORY_USAGE, _pinned_bytes(wanted_bytes)):
        return 0
    held = in_force.value(cgroup, Resource.MEMORY_HIGH)
    if not isinstance(held, int) or not in_force.is_ours(cgroup, Resource.MEMORY_HIGH):
        return 0
    if held == UNLIMITED:
        used_bytes = usage_bytes(in_force, cgroup) or 0
        held = used_bytes // page_bytes * page_bytes + _step(used_bytes, page_bytes)
    return max(held - wanted_bytes, 0)


def _step(of_bytes: int, page_bytes: int) -> int:
    return max(of_bytes * STEP_PERCENT // 100 // page_bytes, 1) * page_bytes


def within(limit_bytes: int, ceiling_bytes: int) -> int:
    """Drops a ``memory.high`` at or above what the cgroup can have anyway."""
    return UNLIMITED if limit_bytes >= ceiling_bytes > 0 else limit_bytes


_REFAULTS = ("workingset_refault_anon", "workingset_refault_file")
_STOLEN = "pgsteal"


class MemoryReading(msgspec.Struct, frozen=True):
    """``stall_us``: time in which some task waited for memory; None where the cgroup does not
    tell. ``refault_bytes``: reclaimed and soon wanted again. ``stolen_bytes``: reclaimed by
    anybody. All but the usage count from the start of the cgroup."""

    usage_bytes: int
    stall_us: int | None
    refault_bytes: int
    stolen_bytes: int


def huge_bytes(snapshot: Snapshot, cgroup: str) -> int:
    """Return the huge pages in use there, where they count as memory: no request for memory has
    room for them, and the kernel can take none back."""
    if not snapshot.node.rules.huge_pages_are_memory:
        return 0
    for line in str(snapshot.in_force.value(cgroup, Resource.MEMORY_STAT)).splitlines():
        name, _, size = line.partition(" ")
        if name == "hugetlb" and size.isdigit():
            return int(size)
    return 0


def usage_bytes(in_force: InForce, cgroup: str) -> int | None:
    value = in_force.value(cgroup, Resource.MEMORY_USAGE)
    return value if isinstance(value, int) else None


def reading(in_force: InForce, cgroup: str, used_bytes: int, page_bytes: int) -> MemoryReading:
    """``used_bytes``: as ``usage_bytes`` told. ``page_bytes``: the unit of the counters."""
    pages = dict.fromkeys((*_REFAULTS, _STOLEN), 0)
    for line in str(in_force.value(cgroup, Resource.MEMORY_STAT)).splitlines():
        name, _, count = line.partition(" ")
        if name in pages and count.isdigit():
            pages[name] = int(count)
    refaults = sum(pages[name] for name in _REFAULTS)
    return MemoryReading(
        used_bytes, stall_us(in_force, cgroup), refaults * page_bytes, pages[_STOLEN] * page_bytes
    )


def stall_us(in_force: InForce, cgroup: str) -> int | None:
    """The total of the line ``some`` (``Documentation/accounting/psi.rst``)."""
    text = in_force.value(cgroup, Resource.MEMORY_PRESSURE)
    for line in str(text).splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind == "some" and total.isdigit():
            return int(total)
    return None


def stalled_share(before_us: int | None, now_us: int | None, elapsed_s: float) -> float | None:
    """None if it is unknown. A counter that runs backwards belongs to a new cgroup."""
    if before_us is None or now_us is None or elapsed_s <= 0 or now_us < before_us:
        return None
    return (now_us - before_us) / 1e6 / elapsed_s
