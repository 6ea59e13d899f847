"""Memory that has proved to be cold: koordlet had it reclaimed, and nobody wanted it back.

What the kernel reclaims by itself and is wanted back counts against it too, since refaults do not
tell who reclaimed: it is a lower bound.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 600.0


class Confirmed:
    """Of one cgroup."""

    def __init__(self) -> None:
        self._turns: deque[tuple[float, int, int]] = deque()

    def add(self, now_s: float, taken_bytes: int, refault_bytes: int) -> None:
        """What happened since the last call."""
        if taken_bytes or (refault_bytes and self._turns):
            self._turns.append((now_s, taken_bytes, refault_bytes))
        while self._turns and now_s - self._turns[0][0] >= WINDOW_S:
            self._turns.popleft()

    @property
    def cold_bytes(self) -> int | None:
        """Of the last ten minutes; None where nothing was reclaimed in them."""
        taken = sum(turn[1] for turn in self._turns)
        return max(taken - sum(turn[2] for turn in self._turns), 0) if taken else None
