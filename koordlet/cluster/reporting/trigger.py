"""When a NodeMetric is reported: each period, and at once where usage has moved
(docs/reference/metrics.md
5.2). Pure; times are monotonic seconds.

The reference has the period alone, so that whoever places pods sees numbers up to a minute old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

STEP_PERCENT = 5.0
"""Of the node's capacity. A reported figure that moves by so much is reported at once."""
PER_SECOND, BURST = 0.1, 2
"""Reports, whatever asks for them: as the reference limits its writes."""


class Level(NamedTuple):
    """Usage as it is reported, and capacity. None: not measured."""

    cpu_milli: float | None
    memory_bytes: float | None


class Pace:
    """A token bucket that nobody waits for."""

    def __init__(self, per_second: float, burst: int, now_s: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._as_of_s = float(burst), now_s

    def take(self, now_s: float) -> bool:
        """Whether one more is allowed now; then it counts."""
        gained = max(now_s - self._as_of_s, 0.0) * self._per_second
        self._tokens, self._as_of_s = min(self._burst, self._tokens + gained), now_s
        # A token that lacks less than can be told apart is one.
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True


@dataclass
class Trigger:
    """``reported``: at the last report; None before the first one. ``reported_s``: of the last
    report, at first of the start."""

    pace: Pace
    step_percent: float = STEP_PERCENT
    reported: Level | None = None
    reported_s: float = 0.0

    def due(self, now_s: float, interval_s: float, level: Level, capacity: Level) -> str:
        """Why a report is due now; empty where none is, or where the pace does not allow one."""
        why = self._why(now_s, interval_s, level, capacity)
        return why if why and self.pace.take(now_s) else ""

    def _why(self, now_s: float, interval_s: float, level: Level, capacity: Level) -> str:
        if self.reported is None and None not in level:
            return "first report"
        if now_s - self.reported_s >= interval_s:
            return "period"
        if self.reported is None:
            return ""
        for name, now, then, all_of_it in zip(
            ("CPU", "memory"), level, self.reported, capacity, strict=True
        ):
            moved = _moved_percent(now, then, all_of_it)
            if moved >= self.step_percent:
                return f"{name} moved by {moved:.0f} % of the node"
        return ""

    def done(self, now_s: float, level: Level) -> None:
        """It was reported."""
        self.reported, self.reported_s = level, now_s


def _moved_percent(now: float | None, then: float | None, capacity: float | None) -> float:
    """What was not measured has not moved; what is measured anew has."""
    if now is None or not capacity:
        return 0.0
    return 100.0 if then is None else 100.0 * abs(now - then) / capacity
