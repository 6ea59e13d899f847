"""When one makes another wait more than is normal between the two: pure arithmetic.

A window is bad where the blame is at least ``FLOOR`` and ``SIGMAS`` standard deviations above what
is normal, and the wait is at least ``BAD_MS_PER_S``. Mean and variance are exponentially weighted
and learn from no bad window, so that a disturbance does not become normal. Three bad windows of
five make an antagonist, or two clear ones in a row, which are twice as far above everything. It
stops being one with the first window that has next to nothing of it, where all before were bad: it
has ended. One that comes and goes stays until two in a row have next to nothing of it, or the last
five were all good.

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
BAD_MS_PER_S = 10.0
"""A bad window has waits of so much. A victim that makes 50 small requests a second waits 5 to 9
ms/s for a harmless neighbour that does the same, which is a third of its demand."""
CLEAR_WINDOWS = 2
"""In a row. One is not enough: that of the first look after a calm time divides the waits as those
of the whole time were, so it may name the wrong one (``docs/concepts/blame.md``)."""
CLEAR = 2.0
"""What is clear has so many times ``FLOOR`` and ``SIGMAS``."""
ENDED = FLOOR / 2
"""Blame below which a culprit has next to nothing of a window."""
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
        return self.above(SIGMAS)

    def above(self, sigmas: float) -> float:
        """So many standard deviations above the mean."""
        return self.mean + sigmas * max(math.sqrt(self.variance), LEAST_SIGMA)

    def learn(self, share: float, learnt: int = LEARN) -> Normal:
        """``learnt``: windows of the victim before this one; the first count alike."""
        weight = 1 / (learnt + 1) if learnt < LEARN else WEIGHT
        off = share - self.mean
        return Normal(self.mean + weight * off, (1 - weight) * (self.variance + weight * off * off))


class Pair(msgspec.Struct, frozen=True):
    """A victim and one who makes it wait. ``bad``: the last windows, the newest first; of an
    antagonist none from before its first bad one. ``clear``:
    how many of the newest are clear. ``since``: when it became an antagonist (as
    ``Snapshot.now``); None while it is none."""

    normal: Normal = Normal()
    bad: tuple[bool, ...] = ()
    since: float | None = None
    blame: float = 0.0
    clear: int = 0

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


def judge_pair(
    before: Pair,
    blame: float,
    now: float,
    *,
    demand_ms_per_s: float,
    hurried: bool = True,
    learnt: int = LEARN,
    excused: bool = False,
) -> Pair:
    """``blame``: waits for this one by demand. ``demand_ms_per_s``: of the victim. ``hurried``: two
    clear windows are enough. ``learnt``: its windows before this one. ``excused``: another one is
    bad in this window, which may be why."""
    wait_ms_per_s = blame * demand_ms_per_s
    is_high = learnt >= LEARN and blame >= FLOOR and blame >= before.normal.limit
    is_bad = is_high and wait_ms_per_s >= BAD_MS_PER_S and not excused
    is_clear = hurried and is_bad and _is_clear(before.normal, blame)
    normal = before.normal if is_high else before.normal.learn(blame, learnt)
    bad = (is_bad, *before.bad)[:OF_WINDOWS]
    clear = min(before.clear + 1, CLEAR_WINDOWS) if is_clear else 0
    since = before.since
    if since is None and (sum(bad) >= BAD_WINDOWS or clear >= CLEAR_WINDOWS):
        since = now
        bad = bad[: len(bad) - bad[::-1].index(True)]
    elif since is not None and (not any(bad) or _has_ended(before, blame)):
        since, bad = None, (False,)
    return Pair(normal, bad, since, blame, clear)


def _has_ended(before: Pair, blame: float) -> bool:
    return blame < ENDED and (all(before.bad) or before.blame < ENDED)


def _is_clear(normal: Normal, blame: float) -> bool:
    return blame >= CLEAR * FLOOR and blame >= normal.above(CLEAR * SIGMAS)
