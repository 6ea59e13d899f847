"""Writes about waiting pods by turns of their namespaces: each costs the write and its echo on the
watch, so that whoever makes pods that fit nowhere must not decide how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable

AT_ONCE = 20
PER_S = 20.0
"""Of a namespace; a write and its echo take up to 5 ms of CPU where pods are large."""
_MOST_LINES = 1024


class _Line:
    """``waiting``: keys in the order in which they came. ``paid_s``: up to when writes are paid."""

    __slots__ = ("granted", "paid_s", "timed", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, None] = {}
        self.granted: set[str] = set()
        self.paid_s = 0.0
        self.timed = False

    def wait_s(self, now_s: float) -> float:
        return max(round(self.paid_s - now_s - (AT_ONCE - 1) / PER_S, 6), 0.0)

    def take(self, now_s: float) -> None:
        self.paid_s = max(self.paid_s, now_s) + 1.0 / PER_S


class Turns:
    """``later``: calls a function after so many seconds. ``go``: hears of keys whose turn came."""

    def __init__(
        self,
        go: Callable[[str], None],
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._go, self._later, self._clock = go, later, clock
        self._lines: dict[str, _Line] = {}

    def has(self, key: str) -> bool:
        """Return whether it is the turn of ``key``, which is used then; else it waits in line."""
        space, now_s = _space_of(key), self._clock()
        line = self._lines.get(space)
        if line is None:
            self._tidy(now_s)
            line = self._lines[space] = _Line()
        if key in line.granted:
            line.granted.discard(key)
            return True
        if not line.waiting and not line.wait_s(now_s):
            line.take(now_s)
            return True
        line.waiting.setdefault(key)
        self._time(space, line, now_s)
        return False

    def drop(self, key: str) -> None:
        line = self._lines.get(_space_of(key))
        if line is not None:
            line.waiting.pop(key, None)
            line.granted.discard(key)

    def _time(self, space: str, line: _Line, now_s: float) -> None:
        if line.waiting and not line.timed:
            line.timed = True
            self._later(line.wait_s(now_s), lambda: self._next(space, line))

    def _next(self, space: str, line: _Line) -> None:
        line.timed, now_s = False, self._clock()
        while line.waiting and not line.wait_s(now_s):
            key = next(iter(line.waiting))
            del line.waiting[key]
            line.take(now_s)
            line.granted.add(key)
            self._go(key)
        self._time(space, line, now_s)

    def _tidy(self, now_s: float) -> None:
        if len(self._lines) >= _MOST_LINES:
            for space, line in tuple(self._lines.items()):
                if line.paid_s <= now_s and not (line.waiting or line.granted):
                    del self._lines[space]


def _space_of(key: str) -> str:
    return key.partition("/")[0]
