"""CPU seconds that decisions took, by namespace: whose turn it is among equals, and who must rest.

Without a clock of CPU seconds nobody spends anything, and nobody rests.
"""

from __future__ import annotations

from collections.abc import Callable

QUANTUM_S = 0.05
"""Namespaces whose decisions took as many of these take turns by age."""
CHEAP_S = 0.0005
"""What an attempt takes for each of its pods and nobody is charged for but by turns."""
MOST_REST_S = 60.0
_APART_S = 0.5
_MOST_SPACES = 4096


class Bucket:
    """A debt that time pays back: ``share`` of the time may be spent in the long run, ``burst_s``
    at once."""

    __slots__ = ("_burst_s", "_owed_s", "_share", "_since_s")

    def __init__(self, share: float, burst_s: float) -> None:
        self._share, self._burst_s = share, burst_s
        self._owed_s = self._since_s = 0.0

    def owe(self, cost_s: float, now_s: float) -> None:
        most_s = self._burst_s + self._share * MOST_REST_S
        self._owed_s = min(self._left_s(now_s) + cost_s, most_s)
        self._since_s = now_s

    def free_s(self, now_s: float) -> float:
        """When there is something to spend; ``now_s`` where there is now."""
        if not self._owed_s:
            return now_s
        return now_s + max(self._left_s(now_s) - self._burst_s, 0.0) / self._share

    def _left_s(self, now_s: float) -> float:
        return max(self._owed_s - max(now_s - self._since_s, 0.0) * self._share, 0.0)


class Account:
    """``virtual_s``: what its decisions took, or those of who had his turn when it began to wait,
    where that is more. ``dear``: what led to nothing, and what was not cheap; beyond it others go
    first, whatever their priority. ``first`` and ``vain``: first and later attempts that led to
    nothing; beyond it no such attempt is made. ``evictions``: looks for pods that could go, in
    vain; beyond it nobody looks."""

    __slots__ = ("_next_s", "dear", "evictions", "first", "vain", "virtual_s")

    def __init__(self) -> None:
        self.virtual_s = 0.0
        self._next_s = 0.0
        self.dear = Bucket(0.1, 0.1)
        self.first = Bucket(0.05, 0.2)
        self.vain = Bucket(0.01, 0.1)
        self.evictions = Bucket(0.01, 0.1)

    def denied_s(self, now_s: float) -> float:
        """Until when a unit must not look for pods that could go; 0: it may now. Those that ask
        meanwhile come one after the other."""
        free_s = self.evictions.free_s(now_s)
        if free_s <= now_s:
            return 0.0
        self._next_s = min(max(self._next_s, free_s) + _APART_S, now_s + MOST_REST_S)
        return self._next_s


class Accounts:
    """``cpu_s``: CPU seconds of this thread. One unit at a time is decided for."""

    def __init__(self, cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        self.cpu_s = cpu_s
        self._of: dict[str, Account] = {}
        self._begun_s = self._evictions_s = 0.0
        self._in_vain = False

    def of(self, space: str) -> Account:
        found = self._of.get(space)
        if found is None:
            if len(self._of) >= _MOST_SPACES:
                del self._of[next(iter(self._of))]
            found = self._of[space] = Account()
        return found

    # An attempt.

    def begin(self) -> None:
        self._begun_s, self._evictions_s, self._in_vain = self.cpu_s(), 0.0, False

    def spent_s(self) -> float:
        return self.cpu_s() - self._begun_s

    def looked_for_victims(self, space: str, cost_s: float, now_s: float, *, found: bool) -> None:
        self._evictions_s += cost_s
        if not found:
            self.of(space).evictions.owe(cost_s, now_s)

    def in_vain(self, account: Account, pods: int, now_s: float, *, first: bool) -> float:
        """The attempt led to nothing. What it took above what is cheap."""
        spent_s, self._in_vain = self.spent_s(), True
        bucket = account.first if first else account.vain
        bucket.owe(_above_cheap_s(spent_s - self._evictions_s, pods), now_s)
        return _above_cheap_s(spent_s, pods)

    def end(self, account: Account, pods: int, now_s: float) -> None:
        spent_s = self.spent_s()
        account.virtual_s += spent_s
        account.dear.owe(spent_s if self._in_vain else _above_cheap_s(spent_s, pods), now_s)


def _above_cheap_s(cost_s: float, pods: int) -> float:
    return max(cost_s - CHEAP_S * pods, 0.0)
