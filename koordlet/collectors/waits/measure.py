"""What our programs cost, measured for a second now and then."""

from __future__ import annotations

import math
from collections.abc import Mapping

from koordlet.kernel.bpf.cost import Cost, Meter

EVERY_S = 10.0


class Measurements:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._began_s = -math.inf
        self.costs: Mapping[str, Cost] = {}

    @property
    def goes_on(self) -> bool:
        return self._meter.measuring

    @property
    def unknown(self) -> str:
        """Why the costs are not known; empty where they are."""
        return self._meter.unknown

    def begin(self, now_s: float) -> None:
        """Unless the last one was a moment ago."""
        if not self._meter.measuring and now_s - self._began_s >= EVERY_S:
            self._began_s = now_s
            self._meter.begin(now_s)

    def end(self, now_s: float) -> None:
        if self._meter.measuring:
            self.costs = self._meter.end(now_s) or self.costs
