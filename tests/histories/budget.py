"""How many evictions an owner begins within a minute, also over restarts of the daemon."""

from __future__ import annotations

from koordlet.actuator.evict.journal import Begun
from koordlet.decision.plan import Victim
from tests.histories.broken import check
from tests.histories.policies import PER_MINUTE

_Eviction = tuple[Victim, float]
"""Whom, and since which monotonic second."""


class Budget:
    """One that goes on after a restart, or a while in observe mode, is told again. Not known after
    a restart are those that failed, and those that a full disk never let the daemon note."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[_Eviction, int]] = {}
        """Owner -> its evictions of the last minute, with the start of the daemon they are of."""
        self._failed: set[_Eviction] = set()
        self._unnoted: dict[_Eviction, int] = {}
        """With the start of the daemon that could not note them."""

    def begun(self, begun: Begun, start: int, *, is_disk_full: bool) -> None:
        which, since_s = (begun.victim, begun.since_s), begun.since_s - 60
        before = self._begun.get(begun.owner, {})
        if is_disk_full and which not in before:
            self._unnoted[which] = start
        forgotten = self._failed | self._unnoted.keys()
        times = {
            each: of_start
            for each, of_start in before.items()
            if each[1] > since_s and (of_start == start or each not in forgotten)
        }
        self._begun[begun.owner] = times = {**times, which: start}
        check(len(times) <= PER_MINUTE, f"{begun.owner}: {len(times)} evictions a minute")

    def failed(self, begun: Begun) -> None:
        self._failed.add((begun.victim, begun.since_s))

    def ticked(self, start: int) -> None:
        """This run of the daemon has had a tick with room on the disk: now all is noted."""
        self._unnoted = {each: of for each, of in self._unnoted.items() if of != start}
