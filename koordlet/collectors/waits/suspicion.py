"""Whether it is worth looking each second: waits of all victims together, against their normal."""

from __future__ import annotations

LEAST_MS_PER_S = 50.0
"""Less than that is never worth it."""
TIMES_NORMAL = 1.5
_WEIGHT = 0.05
"""Of the newest second in what is normal: some twenty seconds."""


class Suspicion:
    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._normal_ms = 0.0

    def arises(self, now_s: float, others_ns: int) -> bool:
        """``others_ns`` only grows; ``now_s`` is monotonic."""
        last, self._last = self._last, (now_s, others_ns)
        if last is None or now_s <= last[0] or others_ns < last[1]:
            return False
        ms_per_s = (others_ns - last[1]) / 1e6 / (now_s - last[0])
        arises = ms_per_s >= max(LEAST_MS_PER_S, TIMES_NORMAL * self._normal_ms)
        # It learns from bad seconds too, slowly: a full node is not looked at each second forever.
        self._normal_ms += _WEIGHT * (ms_per_s - self._normal_ms)
        return arises
