"""When one makes another wait more than is normal between the two: pure arithmetic.

A window is bad where the blame is at least ``FLOOR`` and ``SIGMAS`` standard deviations above what
is normal. Mean and variance are exponentially weighted and learn from no bad window, so that a
disturbance does not become normal. Three bad windows of five make an antagonist; it is one until
five in a row were not.
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
SUFFERS_FROM = 0.1
"""Waits of others by demand from which on a victim suffers at all."""


class Normal(msgspec.Struct, frozen=True):
    """What is normal of a share, 0 to 1."""

    mean: float = 0.0
    variance: float = 0.0

    @property
    def limit(self) -> float:
        return self.mean + SIGMAS * max(math.sqrt(self.variance), LEAST_SIGMA)

    def learn(self, share: float) -> Normal:
        off = share - self.mean
        return Normal(self.mean + WEIGHT * off, (1 - WEIGHT) * (self.variance + WEIGHT * off * off))


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
    """A victim, and what is normal of its waits for others."""

    normal: Normal = Normal()
    share: float = 0.0
    suffers: bool = False

    @property
    def is_quiet(self) -> bool:
        """Nothing would be lost without it."""
        most = max(self.share, self.normal.mean, math.sqrt(self.normal.variance))
        return not self.suffers and most < LEAST_SIGMA


def judge_victim(before: Suffering, share: float) -> Suffering:
    """``share``: waits for others by demand."""
    suffers = share >= SUFFERS_FROM and share >= before.normal.limit
    normal = before.normal if suffers else before.normal.learn(share)
    return Suffering(normal, share, suffers)


def judge_pair(before: Pair, blame: float, now: float) -> Pair:
    """``blame``: waits for this one by demand."""
    is_bad = blame >= FLOOR and blame >= before.normal.limit
    normal = before.normal if is_bad else before.normal.learn(blame)
    bad = (is_bad, *before.bad)[:OF_WINDOWS]
    since = before.since
    if since is None and sum(bad) >= BAD_WINDOWS:
        since = now
    elif since is not None and len(bad) == OF_WINDOWS and not any(bad):
        since = None
    return Pair(normal, bad, since, blame)
