"""How long a limit was not in force, by what a watch has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.v2.machine import Seen

MINUTE_S = 60.0


@dataclass(frozen=True)
class Gaps:
    """Times without the limit, each its begin and end in the guest's seconds, of ``watched_s``."""

    each: tuple[tuple[float, float], ...]
    watched_s: float

    @property
    def total_s(self) -> float:
        return sum(end - begin for begin, end in self.each)

    @property
    def longest_s(self) -> float:
        return max((end - begin for begin, end in self.each), default=0.0)

    @property
    def worst_minute_s(self) -> float:
        """The most in any minute: one that begins with a gap."""
        return max((self._within(begin, begin + MINUTE_S) for begin, _ in self.each), default=0.0)

    def _within(self, begin: float, end: float) -> float:
        parts = (min(e, end) - max(b, begin) for b, e in self.each)
        return sum(part for part in parts if part > 0)

    def __str__(self) -> str:
        return (
            f"{len(self.each)} times, {self.total_s:.2f} s in all, longest {self.longest_s:.2f} s, "
            f"at most {self.worst_minute_s:.2f} s in a minute, of {self.watched_s:.0f} s"
        )


def gaps(seen: Seen, path: str, holds: Callable[[str], bool]) -> Gaps:
    """``holds``: whether the limit is in force with this content. A file that is gone has none to
    hold."""
    found = []
    began: float | None = None
    changes = seen.of(path)
    assert changes, f"{path} was never there"
    for change in changes:
        held = not change.value or holds(change.value)
        if held and began is not None:
            found.append((began, change.at_s))
            began = None
        elif not held and began is None:
            began = change.at_s
    if began is not None:
        found.append((began, seen.until_s))
    return Gaps(tuple(found), seen.until_s - changes[0].at_s)
