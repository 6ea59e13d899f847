"""When one makes another wait more than is normal between the two: pure arithmetic.

A window is bad where the blame is at least ``FLOOR`` and ``SIGMAS`` standard deviations above what
is normal. Mean and variance are exponentially weighted and learn from no bad window, so that a
disturbance does not become normal. Three bad windows of five make an antagonist. It stops being one
when the last five windows were all good.

The first windows of a victim only teach: a neighbour that takes much from the start is normal. One
that comes later starts from zero, so it is noticed.
"""

from __future__ import annotations

import math

import msgspec

FLOOR = 0.05
SIGMAS = 3.0
LEAST_SIGMA = 0.01
WEIGHT = 0.1
"""Of the newest window in mean and variance."""
OF_WINDOWS = 5
BAD_WINDOWS = 3
LEARN = 5
"""First windows of a victim, in which nothing is bad."""
SUFFERS_FROM = 0.1
"""Waits of others by demand from which on a victim suffers at all."""


class Normal(msgspec.Struct, frozen=True):
    """What is normal of a share, 0 to 1."""

    mean: float = 0.0
    variance: float = 0.0

    @property
    def limit(self) -> float:
        return self.mean + SIGMAS * max(math.sqrt(self.variance), LEAST_SIGMA)

    def learn(self, share: float, learnt: int = LEARN) -> Normal:
        """``learnt``: windows of the victim before this one; the first count alike."""
        weight = 1 / (learnt + 1) if learnt < LEARN else WEIGHT
        off = share - self.mean
        return Normal(self.mean + weight * off, (1 - weight) * (self.variance + weight * off * off))


class Pair(msgspec.Struct, frozen=True):
    """A victim and one who makes it wait. ``bad``: the last windows, the newest first.
    ``since``: when it became an antagonist (as ``Snapshot.now``); None while it is none."""

    normal: Normal = Normal()
    bad: tuple[bool, ...] = ()
    since: float | None = None
    blame: float = 0.0

    @property
    def is_quiet(self) -> bool:
        """Nothing would be lost without it."""
        small = max(self.normal.mean, self.blame) < LEAST_SIGMA
        return self.since is None and not any(self.bad) and small


class Suffering(msgspec.Struct, frozen=True):
    """A victim, and what is normal of its waits for others. ``demand_ms_per_s``: what it ran and
    waited in the newest window, which was ``span_s`` long."""

    normal: Normal = Normal()
    share: float = 0.0
    suffers: bool = False
    demand_ms_per_s: float = 0.0
    span_s: float = 0.0

    @property
    def is_quiet(self) -> bool:
        """Nothing would be lost without it."""
        most = max(self.share, self.normal.mean, math.sqrt(self.normal.variance))
        return not self.suffers and most < LEAST_SIGMA


def judge_victim(
    before: Suffering,
    share: float,
    *,
    demand_ms_per_s: float = 0.0,
    span_s: float = 0.0,
    learnt: int = LEARN,
) -> Suffering:
    """``share``: waits for others by demand. ``learnt``: its windows before this one."""
    suffers = learnt >= LEARN and share >= SUFFERS_FROM and share >= before.normal.limit
    normal = before.normal if suffers else before.normal.learn(share, learnt)
    return Suffering(normal, share, suffers, demand_ms_per_s, span_s)


def judge_pair(before: Pair, blame: float, now: float, *, learnt: int = LEARN) -> Pair:
    """``blame``: waits for this one by demand. ``learnt``: windows of the victim before this
    one."""
    is_bad = learnt >= LEARN and blame >= FLOOR and blame >= before.normal.limit
    normal = before.normal if is_bad else before.normal.learn(blame, learnt)
    bad = (is_bad, *before.bad)[:OF_WINDOWS]
    since = before.since
    if since is None and sum(bad) >= BAD_WINDOWS:
        since = now
    elif since is not None and len(bad) == OF_WINDOWS and not any(bad):
        since = None
    return Pair(normal, bad, since, blame)
