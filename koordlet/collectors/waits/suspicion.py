"""Whether it is worth looking each second: waits of all victims for others, together."""

from __future__ import annotations

from typing import NamedTuple

CPU_MS_PER_S = 50.0
"""A twentieth of one CPU that runs somebody else while latency-sensitive work waits for it."""
STALL_MS_PER_S = 10.0
"""A service that writes a log of 50 records a second waits no more for a disk that is flooded."""


class Recent(NamedTuple):
    """Waits of all victims for others in the last second or so."""

    ns: int
    span_s: float


LEAST_SPAN_S = 0.25
"""Over less time a rate is noise."""


class Suspicion:
    """``recent``: since the call before, or the one before that where it was just now.
    ``least_ms_per_s``: waits that are worth a look."""

    def __init__(self, least_ms_per_s: float) -> None:
        self._least_ms_per_s = least_ms_per_s
        self.recent = Recent(0, 0.0)
        self._calls: tuple[tuple[float, int], ...] = ()

    def arises(self, now_s: float, others_ns: int) -> bool:
        """``others_ns`` only grows; ``now_s`` is monotonic."""
        calls = (*self._calls, (now_s, others_ns))
        since_s, since_ns = next(
            (call for call in reversed(calls) if now_s - call[0] >= LEAST_SPAN_S), calls[0]
        )
        self._calls = calls[-2:]
        self.recent = Recent(max(others_ns - since_ns, 0), max(now_s - since_s, 0.0))
        return self.recent.ns / 1e6 > self._least_ms_per_s * self.recent.span_s
