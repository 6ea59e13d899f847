"""How long a container may stay above its limit: a token bucket (spec/qos.md 3.5).

A token is one percent of the limit for one second. Use above the limit takes tokens, use below
60 % of it returns some.
"""

from __future__ import annotations

import msgspec

FOR_EVER_S = -1
"""A period without end: there is no bucket."""
_FULL_PERCENT = 100
_REFILL_BELOW_PERCENT = 60


class Bucket(msgspec.Struct, frozen=True):
    """``tokens`` are between -``capacity`` and ``capacity``; ``at``: monotonic seconds of the last
    account."""

    tokens: float
    capacity: float
    at: float


def capacity(period_s: int, percent: int) -> float:
    """Tokens that ``percent`` of the limit takes in ``period_s``."""
    return float(period_s * max(percent - _FULL_PERCENT, 0))


def account(bucket: Bucket | None, size: float, usage_percent: int, now: float) -> Bucket:
    """The bucket after what was used since the last account. None, or one of another size, starts
    half full: neither a restart nor a new container earns or loses a burst."""
    if bucket is None or bucket.capacity != size:
        bucket = Bucket(size / 2, size, now)
    elapsed_s = max(now - bucket.at, 0.0)
    if usage_percent >= _FULL_PERCENT or usage_percent < _REFILL_BELOW_PERCENT:
        gained = (_FULL_PERCENT - usage_percent) * elapsed_s
    else:
        gained = 0.0
    return Bucket(min(max(bucket.tokens + gained, -size), size), size, now)


def allows(bucket: Bucket) -> bool:
    return bucket.tokens > 0
