"""How many requests a second, and which of those that wait goes first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from enum import IntEnum


class Priority(IntEnum):
    """Of a request; the lower number goes first."""

    LEASE = 0
    BIND = 1
    EVICT = 2
    STATUS = 3
    READ = 4
    EVENT = 5


class RequestBudget:
    """A token bucket. Whoever finds it empty waits in order of priority, then of arrival.

    ``per_second`` tokens come in, up to ``burst``. A lease never waits: who loses it for want of a
    token would make its followers write more, not less.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._as_of = clock()
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def take(self, priority: Priority) -> None:
        """Returns when the request may go out."""
        self._fill()
        if priority is Priority.LEASE or (not self._waiting and self._tokens >= 1.0):
            self._tokens -= 1.0
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        self._arm()
        await turn

    def _fill(self) -> None:
        now = self._clock()
        gained = (now - self._as_of) * self._per_second
        self._tokens = min(self._burst, self._tokens + gained)
        self._as_of = now

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            missing = max(0.0, 1.0 - self._tokens)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(missing / self._per_second, self._serve)

    def _serve(self) -> None:
        self._timer = None
        self._fill()
        # A timer may fire a clock tick early; half a token is not worth another wait.
        while self._waiting and self._tokens >= 0.999:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # whoever waited may have been cancelled
                self._tokens -= 1.0
                turn.set_result(None)
        self._arm()
