"""What decisions want reclaimed, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from koordlet.actuator.reclaim import Reclaimed, Reclaimer
from koordlet.decision.names import shown
from koordlet.decision.plan import Decision, Reclaim
from koordlet.decision.record import Kind, Record
from koordlet.report import metrics
from koordlet.report.registry import Metrics

RESOURCE = "memory.reclaim"
TELL_S = 60.0
"""Reclaim from one cgroup that goes on is recorded this often, with what it came to."""
_RESULT_KINDS = {"reclaimed": Kind.WRITE, "would-reclaim": Kind.WRITE, "refused": Kind.REFUSAL}


@dataclass
class _Going:
    """One cgroup and what comes of it. ``told_s``: unix time of the last record."""

    told_s: float = -math.inf
    untold_bytes: int = 0


class Reclaims:
    """Between the engine and the worker; ``tell`` hears what a person may want to know, and
    ``reclaimed`` how many bytes each cgroup has given."""

    def __init__(
        self,
        reclaimer: Reclaimer,
        reported: Metrics,
        tell: Callable[[Record], None],
        reclaimed: Callable[[str, int], None],
    ) -> None:
        self._reclaimer = reclaimer
        self._metrics = reported
        self._tell = tell
        self._reclaimed = reclaimed
        self._going: dict[tuple[str, str, str], _Going] = {}

    def took(
        self, owner: str, decision: Decision, time_s: float, is_shown: Callable[[str], bool]
    ) -> None:
        """One decision of ``owner``, and what has ended meanwhile. One that wants nothing, as
        between two ticks, leaves what was asked for before to the worker. ``is_shown``: whether
        of this cgroup it is only said what would be reclaimed (``""``: of all of them)."""
        for each in self._reclaimer.ended():
            self._ended(each, time_s)
        if decision.reclaims or is_shown(""):
            carried = tuple(each for each in decision.reclaims if not is_shown(each.cgroup))
            self._reclaimer.take(owner, carried)
        for wanted in decision.reclaims:
            if is_shown(wanted.cgroup):
                self._record(owner, wanted, wanted.size_bytes, "would-reclaim", "", time_s)

    def stop(self, owners: Iterable[str]) -> None:
        """Drop what they asked for; a slice under way ends by itself."""
        for owner in owners:
            self._reclaimer.take(owner, ())

    def _ended(self, each: Reclaimed, time_s: float) -> None:
        result = "refused" if each.error else "reclaimed"
        self._metrics.inc(metrics.RECLAIMED_BYTES, (each.owner,), each.size_bytes)
        if each.size_bytes:
            self._reclaimed(each.reclaim.cgroup, each.size_bytes)
        if each.size_bytes or each.error:
            self._record(each.owner, each.reclaim, each.size_bytes, result, each.error, time_s)

    def _record(
        self, owner: str, wanted: Reclaim, size: int, result: str, detail: str, time_s: float
    ) -> None:
        # Who was quiet that long begins anew.
        self._going = {
            key: going for key, going in self._going.items() if time_s - going.told_s < 2 * TELL_S
        }
        going = self._going.setdefault((owner, wanted.cgroup, result), _Going())
        going.untold_bytes += size
        if time_s - going.told_s < TELL_S:
            return
        self._tell(
            Record(
                time_s,
                _RESULT_KINDS[result],
                owner,
                wanted.why,
                cgroup=shown(wanted.cgroup),
                resource=RESOURCE,
                wanted=going.untold_bytes,
                result=result,
                detail=detail,
            )
        )
        going.told_s, going.untold_bytes = time_s, 0
