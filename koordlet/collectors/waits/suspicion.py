"""Whether it is worth looking each second: waits of all victims for others, together."""

from __future__ import annotations

from typing import NamedTuple

LEAST_MS_PER_S = 50.0
"""A twentieth of one CPU that runs somebody else while latency-sensitive work waits for it."""
LEAST_STALL_MS_PER_S = 10.0
"""A service that writes a log of 50 records a second waits no more for a disk that is flooded."""


class Recent(NamedTuple):
    """Waits of all victims for others in the last second or so."""

    ns: int
    span_s: float


class Suspicion:
    """``recent``: between the last two looks. ``least_ms_per_s``: waits that are worth it."""

    def __init__(self, least_ms_per_s: float) -> None:
        self._least_ms_per_s = least_ms_per_s
        self.recent = Recent(0, 0.0)
        self._last: tuple[float, int] | None = None

    def arises(self, now_s: float, others_ns: int) -> bool:
        """``others_ns`` only grows; ``now_s`` is monotonic."""
        last, self._last = self._last, (now_s, others_ns)
        if last is None or now_s <= last[0] or others_ns < last[1]:
            return False
        self.recent = Recent(others_ns - last[1], now_s - last[0])
        return self.recent.ns / 1e6 / self.recent.span_s >= self._least_ms_per_s
