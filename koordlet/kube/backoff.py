"""How long to wait before another try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Backoff:
    """Doubles from ``first_s`` to ``most_s``; each wait is between half and all of that, so that a
    thousand nodes which lost the same server do not come back together. ``random`` is uniform in
    [0, 1)."""

    random: Callable[[], float]
    first_s: float = 0.1
    most_s: float = 30.0
    failures: int = 0

    def next_s(self) -> float:
        """Of one more failure in a row."""
        whole = min(self.most_s, self.first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return whole * (0.5 + 0.5 * self.random())

    def reset(self) -> None:
        self.failures = 0
