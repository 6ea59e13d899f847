"""What the scheduler shall know at once: that services of this node suffer. Pure; times are
monotonic seconds, but for the time that is written.

A NodeMetric tells of averages. This is an annotation of the NodeResourceTopology, which koordlet
may write anyway; the reference has nothing like it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from koordlet.cluster.reporting.trigger import BURST, PER_SECOND, Pace
from koordlet.protocol.objects.times import instant

ANNOTATION = "node.koordinator.sh/strain"
THROTTLED, PRESSURE, MEMORY = "cpuThrottled", "cpuPressure", "memoryShort"
INTERFERENCE = "interference"
HOLD_S = 30.0
"""A kind of strain counts for so long after it was last seen."""
REFRESH_S = 60.0
"""While strain lasts its time is written anew: the scheduler lets it expire."""


class Strain(msgspec.Struct, frozen=True):
    """The annotation."""

    kinds: tuple[str, ...]
    time: str


@dataclass
class StrainReport:
    pace: Pace
    _seen_s: dict[str, float] = field(default_factory=dict)
    _written_s: float | None = None
    _written: tuple[str, ...] | None = None

    @classmethod
    def begin(cls, now_s: float) -> StrainReport:
        return cls(Pace(PER_SECOND, BURST, now_s))

    def due(
        self, now_s: float, time_s: float, kinds: Iterable[str], there: str | None
    ) -> dict[str, str | None]:
        """The annotation to write, None for one to take away; empty where nothing is to be said.
        ``kinds``: what is seen now; ``there``: the annotation that stands there; ``time_s``: Unix.
        """
        for kind in kinds:
            self._seen_s[kind] = now_s
        self._seen_s = {k: s for k, s in self._seen_s.items() if now_s - s < HOLD_S}
        held = tuple(sorted(self._seen_s))
        if not held:
            if there is None or not self.pace.take(now_s):
                return {}
            self._written, self._written_s = None, None
            return {ANNOTATION: None}
        old = self._written_s is None or now_s - self._written_s >= REFRESH_S
        if held == self._written and there is not None and not old:
            return {}
        if not self.pace.take(now_s):
            return {}
        self._written, self._written_s = held, now_s
        text = msgspec.json.encode(Strain(held, instant(time_s))).decode()
        return {ANNOTATION: text}
