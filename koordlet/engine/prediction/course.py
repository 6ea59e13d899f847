"""A round on its way: so much of it at each tick that it ends in time, and no tick waits long."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import islice

_SHARE = 0.75
"""Of the time between two rounds; the rest is for ticks that come late."""
_LONGEST_S = 45.0
"""With the longest interval, all that a round looks at is then still in memory."""
MOST_STEPS = 32
"""At one tick: some 30 ms, with seasons twice that. A full node of 1,024 pods needs three ticks."""


class Course:
    """``time_ms``: end of the window that the round is about, unix time. ``spent_s``: CPU time so
    far."""

    __slots__ = ("_begun_s", "_count", "_done", "_span_s", "_steps", "spent_s", "time_ms")

    def __init__(
        self, steps: Iterator[None], count: int, time_ms: int, now_s: float, interval_s: float
    ) -> None:
        """``count``: of the steps, or a few more. ``now_s``: monotonic. ``interval_s``: from one
        round to the next."""
        self._steps = steps
        self._count = count
        self._begun_s = now_s
        self._span_s = min(_SHARE * interval_s, _LONGEST_S)
        self._done = 0
        self.time_ms = time_ms
        self.spent_s = 0.0

    def go_on(self, until_s: float) -> bool:
        """Whether it has ended. ``until_s``: when it can go on the next time, monotonic."""
        wanted = math.ceil(self._count * (until_s - self._begun_s) / self._span_s) - self._done
        steps = min(max(wanted, 1), MOST_STEPS)
        started = time.thread_time()
        done = sum(1 for _ in islice(self._steps, steps))
        self.spent_s += time.thread_time() - started
        self._done += done
        return done < steps
