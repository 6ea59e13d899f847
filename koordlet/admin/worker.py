"""The threads that work for callers of the local API, so that the event loop does not.

They rest between slices (``kernel/background.py``), so the loop never waits longer for one than a
slice. There is one for what is searched for, so that ten callers cost the loop no more than one,
and one for what is only to be encoded, so that `status` does not wait for a search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

from koordlet.kernel.background import GivenUpError, Pace, Pause, no_pause

T = TypeVar("T")


class _Pace(Pace):
    """``spent``: told the CPU time of the thread, as it goes."""

    def __init__(self, spent: Callable[[float], None]) -> None:
        super().__init__()
        self._spent = spent
        self._cpu_s = 0.0

    def begin(self) -> None:
        """In the thread."""
        super().begin()
        self._cpu_s = time.thread_time()

    def account(self) -> None:
        before_s, self._cpu_s = self._cpu_s, time.thread_time()
        self._spent(self._cpu_s - before_s)


class Worker:
    """Takes one piece of work after the other, in the order in which they came; beside it what is
    ``quick``, in the same way. ``cpu_s``: CPU time that callers have cost so far."""

    def __init__(self) -> None:
        # The threads themselves are started by the first callers.
        self._executors = {
            quick: ThreadPoolExecutor(1, thread_name_prefix="koordlet-api")
            for quick in (False, True)
        }
        self._current: set[_Pace] = set()
        self._closed = False
        self._cpu_s = dict.fromkeys(self._executors, 0.0)

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    async def run(self, work: Callable[[Pause], T], *, quick: bool = False) -> T:
        """What ``work`` returns, or raises. It ends at its next pause when the caller is cancelled.
        Raises CancelledError when the worker is closed, before or meanwhile."""
        if self._closed:
            raise asyncio.CancelledError
        pace = _Pace(partial(self._spent, quick))
        self._current.add(pace)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executors[quick], _paced, pace, work)
        except GivenUpError:
            raise asyncio.CancelledError from None
        finally:
            pace.given_up = True
            self._current.discard(pace)

    def _spent(self, quick: bool, cpu_s: float) -> None:
        """Each thread has its own sum."""
        self._cpu_s[quick] += cpu_s

    def close(self) -> None:
        """Give up what is in progress, and what waits. Returns at once."""
        self._closed = True
        for pace in self._current:
            pace.given_up = True
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)


def _paced(pace: _Pace, work: Callable[[Pause], T]) -> T:
    pace.begin()
    try:
        return work(pace.pause)
    finally:
        pace.account()


async def in_turns(worker: Worker, begin: Callable[[Pause], Iterator[T]]) -> AsyncIterator[T]:
    """The items of a long piece of work, each a turn of the worker's: others get theirs between
    two of them."""
    pauses: list[Pause] = [no_pause]
    items = begin(lambda: pauses[0]())

    def next_item(pause: Pause) -> tuple[T, ...]:
        pauses[0] = pause
        return tuple(islice(items, 1))

    while found := await worker.run(next_item):
        yield found[0]
