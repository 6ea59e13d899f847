"""What asks for a decision between two ticks: alarms and changes, answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from koordlet.decision.snapshot import Wake, WakeKind

CHANGE_GATHER_S = 0.05
"""A pod comes as a directory and some children in as many events: one answer serves them all."""
ALARM_GAP_S = 0.02
"""Several groups suffer at once; the first alarm is answered at once, the others together."""
WORK_SHARE = 0.1
"""Share of a core that answers may take: when many groups suffer for long, the gaps grow with
what an answer costs."""


class Wakes:
    """``answer(wake, changed, asked_s)``: ``wake`` is the first alarm that waits, or a CHANGE;
    ``changed`` says whether there was a change as well; ``asked_s`` is when the alarm came.
    ``count`` hears of each alarm when it comes."""

    def __init__(
        self,
        answer: Callable[[Wake, bool, float], None],
        count: Callable[[Wake], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._answer = answer
        self._count = count
        self._monotonic = monotonic
        self._alarm: Wake | None = None
        self._asked_s = 0.0
        self._changed = False
        self._free_s = 0.0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        self._changed = True
        self._arm(CHANGE_GATHER_S)

    def alarmed(self, wake: Wake) -> None:
        self._count(wake)
        if self._alarm is None:
            self._alarm, self._asked_s = wake, self._monotonic()
        elif wake.ls_cores is not None:
            # One answer serves both alarms, and it needs the newest figure.
            self._alarm = msgspec.structs.replace(self._alarm, ls_cores=wake.ls_cores)
        self._arm(0.0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_s: float) -> None:
        now = self._monotonic()
        due_s = max(now + delay_s, self._free_s)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s = due_s
        self._timer = asyncio.get_running_loop().call_later(due_s - now, self._fire)

    def _fire(self) -> None:
        self._timer = None
        wake, changed = self._alarm or Wake(WakeKind.CHANGE), self._changed
        self._alarm, self._changed = None, False
        started = self._monotonic()
        self._answer(wake, changed, self._asked_s)
        ended = self._monotonic()
        self._free_s = ended + max(ALARM_GAP_S, (ended - started) / WORK_SHARE)
