"""Sharing one CPU quota among several best-effort cgroups, by what each can use."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

HUNGRY_RATIO = 0.9
"""A cgroup that uses this much of its quota is held back by it: what it wants is unknown."""
HEADROOM = 1.25
"""A cgroup below its quota is offered this much of its usage."""
STEADY_RATIO = 0.65
"""A demand stands while the cgroup uses between this share and ``HUNGRY_RATIO`` of it, so that
noise of its usage does not move the quotas of all."""
HALF_LIFE_S = 1.0
"""A demand that was seen is given up by half in this time, so that a sample older than the last
change of the quota does not take a share away again."""


class QuotaShare(msgspec.Struct, frozen=True):
    """What a cgroup got last time, and what it was thought to want. us per 100 ms."""

    quota_us: int
    demand_us: float


def demand(
    usage_us: float | None,
    quota_us: int | None,
    last: QuotaShare | None,
    total_us: int,
    elapsed_s: float,
) -> float:
    """What a cgroup could use, in us per 100 ms; ``total_us`` stands for "as much as it gets".

    ``usage_us`` None: no sample. ``quota_us`` None: not limited at present.
    """
    if usage_us is None or (quota_us is not None and usage_us >= HUNGRY_RATIO * quota_us):
        return float(total_us)
    wanted = usage_us * HEADROOM
    if last is not None:
        if STEADY_RATIO * last.demand_us <= usage_us < HUNGRY_RATIO * last.demand_us:
            wanted = last.demand_us
        else:
            wanted = max(wanted, last.demand_us * 0.5 ** (elapsed_s / HALF_LIFE_S))
    return min(wanted, float(total_us))


def split(
    total_us: int, demands: Sequence[float], caps: Sequence[int], floor_us: int
) -> tuple[int, ...]:
    """``total_us`` divided so that the sum never exceeds it.

    Everybody gets ``floor_us`` (``total_us`` covers that). Then the lowest are raised together
    until each has its demand, and what is left is offered to all in the same way. Nobody gets
    more than its cap, so a growing cgroup leaves to the others what it may not take yet.
    """
    given = [floor_us] * len(demands)
    wanted = [min(int(want), cap) for want, cap in zip(demands, caps, strict=True)]
    given = _raise(given, wanted, total_us - sum(given))
    given = _raise(given, caps, total_us - sum(given))
    return tuple(given)


def _raise(given: Sequence[int], tops: Sequence[int], amount: int) -> list[int]:
    """Water-filling: the highest common level that ``amount`` pays for, nobody above its top."""

    def filled(level: int) -> list[int]:
        return [max(had, min(top, level)) for had, top in zip(given, tops, strict=True)]

    low, high = 0, max(tops)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(filled(middle)) - sum(given) <= amount:
            low = middle
        else:
            high = middle - 1
    return filled(low)
