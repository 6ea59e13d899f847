"""Amounts of CPU in the units of the cgroup files (docs/reference/hooks.md 1.7)."""

from __future__ import annotations

import math

from koordlet.decision.resource import (
    CFS_PERIOD_US,
    MAX_QUOTA_US,
    MIN_QUOTA_US,
    MIN_SHARES,
    UNLIMITED,
)

MAX_SHARES = 262144
"""The largest cpu.shares that the kernel takes."""


def milli_to_shares(milli: int) -> int:
    """Milli-cores -> cpu.shares, 2 for nothing asked."""
    if milli <= 0:
        return MIN_SHARES
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def milli_to_quota_us(milli: int, period_us: int = CFS_PERIOD_US) -> int:
    """Milli-cores -> cpu.cfs_quota_us for each period; -1 (unlimited) for none, and for more than
    the kernel takes, which no machine has."""
    quota_us = milli * period_us // 1000
    return max(quota_us, MIN_QUOTA_US) if milli > 0 and quota_us <= MAX_QUOTA_US else UNLIMITED


def normalized_quota_us(quota_us: int, ratio: float | None) -> int:
    """A quota in time of a normal CPU as time of one that is ``ratio`` times as fast.

    Nothing changes without a ratio, below 1, and where there is no limit
    (docs/reference/hooks.md 2.4).
    """
    if quota_us <= 0 or ratio is None or ratio <= 1:
        return quota_us
    return max(math.ceil(quota_us / ratio), MIN_QUOTA_US)
