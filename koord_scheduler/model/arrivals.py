"""When reports of nodes came: a node's clock says nothing of how old its report is."""

from __future__ import annotations

from collections.abc import Hashable

MOST_AHEAD_S = 60.0
"""A clock may be so far ahead of ours, for who reads once and has no arrival to go by."""


def is_ahead(told_s: float | None, now_s: float) -> bool:
    """Whether a report that was read once gives a time at which it cannot have been made: nobody
    knows how old it is."""
    return told_s is not None and told_s > now_s + MOST_AHEAD_S


class Arrivals:
    """Remembers of each source the time that its last report gives, and when that came.

    A report is at most as new as its arrival here, so a clock that is ahead keeps no dead node
    fresh. What came while nobody looked is as old as it says.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}

    def at(self, source: Hashable, told_s: float | None, now_s: float) -> float | None:
        """Return the time from which the age of a report counts; None where it gives no time."""
        if told_s is None:
            self.forget(source)
            return None
        seen = self._seen.get(source)
        if seen is None or seen[0] != told_s:
            seen = self._seen[source] = (told_s, now_s)
        return min(seen)

    def forget(self, source: Hashable) -> None:
        self._seen.pop(source, None)
