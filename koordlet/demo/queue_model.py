"""A small model of the LS service for the simulation: workers, one queue, speed by the scheduler.

Requests are served in order of arrival by the first free worker, at the speed that the fake
scheduler grants in each step. A worker that was idle has to be woken: where its CPU runs a normal
task of somebody else it waits for the rest of that task's slice first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass
class _Busy:
    """A worker's request: index, when it gets its CPU, CPU seconds still needed."""

    index: int
    runs_from: float
    remaining_s: float


class Service:
    """``arrivals`` in s, ascending. ``slice_s``: a whole slice of the task found on the CPU."""

    def __init__(
        self, arrivals: Sequence[float], workers: int, service_s: float, slice_s: float, seed: int
    ) -> None:
        draw = random.Random(seed)
        self.done: list[tuple[float, float]] = []
        """(arrival, latency) in s, in order of completion."""
        self._arrivals = arrivals
        self._workers = workers
        self._service_s = service_s
        self._slice_s = slice_s
        # Fixed for each request, so that looking ahead and serving see the same.
        self._luck = [(draw.random(), draw.random()) for _ in arrivals]
        self._busy: list[_Busy] = []
        self._next = 0

    @property
    def finished(self) -> bool:
        return self._next == len(self._arrivals) and not self._busy

    def wanted_s(self, start: float, end: float, wake_delay_s: float) -> float:
        """CPU seconds the workers would use from `start` to `end` if nobody slowed them down."""
        busy = [_Busy(b.index, b.runs_from, b.remaining_s) for b in self._busy]
        return self._advance(busy, self._next, start, end, 1.0, wake_delay_s)[0]

    def serve(self, start: float, end: float, speed: float, wake_delay_s: float) -> float:
        """Let time pass; returns the CPU seconds used.

        `speed` 1 = a whole CPU for each running worker. `wake_delay_s` is the mean wait of a
        wake-up: half a slice times the chance to find the CPU taken.
        """
        used_s, self._next, ended = self._advance(
            self._busy, self._next, start, end, speed, wake_delay_s
        )
        for index, when in ended:
            self.done.append((self._arrivals[index], when - self._arrivals[index]))
        return used_s

    def _advance(
        self,
        busy: list[_Busy],
        following: int,
        start: float,
        end: float,
        speed: float,
        wake_delay_s: float,
    ) -> tuple[float, int, list[tuple[int, float]]]:
        """CPU seconds used, index of the next request, and what ended (index, when)."""
        arrivals, now, used_s = self._arrivals, start, 0.0
        ended: list[tuple[int, float]] = []
        while True:
            arrival = arrivals[following] if following < len(arrivals) else inf
            if len(busy) < self._workers and arrival <= now:
                wait_s = self._wake_wait(following, wake_delay_s) if arrival == now else 0.0
                busy.append(_Busy(following, now + wait_s, self._service_s))
                following += 1
                continue
            ends = [max(b.runs_from, now) + b.remaining_s / speed if speed else inf for b in busy]
            then = min((*ends, end))
            if len(busy) < self._workers:
                then = min(then, arrival)
            for worker in busy:
                work_s = max(0.0, then - max(worker.runs_from, now)) * speed
                worker.remaining_s -= work_s
                used_s += work_s
            ended += [(b.index, when) for b, when in zip(busy, ends, strict=True) if when <= then]
            busy[:] = [b for b, when in zip(busy, ends, strict=True) if when > then]
            now = then
            if now >= end:
                return used_s, following, ended

    def _wake_wait(self, index: int, wake_delay_s: float) -> float:
        chance, part = self._luck[index]
        return part * self._slice_s if chance < wake_delay_s / (self._slice_s / 2) else 0.0
