"""The thread that works for callers of the local API, so that the event loop does not.

Python runs one thread at a time. A thread that is always busy takes its turn whenever the loop
waits for a system call, and keeps it for up to 5 ms (``sys.getswitchinterval``): a tick with some
hundred reads would take seconds. So this one works in slices of ``SLICE_S`` and rests for
``REST_S`` between them; the loop never waits longer for it than a slice. There is one thread, so
that ten callers cost the loop no more than one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SLICE_S = 0.0005
REST_S = 0.001

T = TypeVar("T")
Pause = Callable[[], None]
"""To be called several times a millisecond by whoever works in the thread."""


def no_pause() -> None:
    """For work outside the thread."""


class _AbandonedError(Exception):
    """Nobody waits for the answer any more."""


class _Pacer:
    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.abandoned = False

    def pause(self) -> None:
        if self.abandoned:
            raise _AbandonedError
        if time.perf_counter() - self._began_s >= SLICE_S:
            time.sleep(REST_S)
            self._began_s = time.perf_counter()


class Worker:
    """Takes one piece of work after the other, in the order in which they came."""

    def __init__(self) -> None:
        # The thread itself is started by the first caller.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="koordlet-api")
        self._current: set[_Pacer] = set()

    async def run(self, work: Callable[[Pause], T]) -> T:
        """What ``work`` returns, or raises. It ends at its next pause when the caller is cancelled.
        Raises CancelledError when the worker is closed meanwhile."""
        pacer = _Pacer()
        self._current.add(pacer)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, work, pacer.pause)
        except _AbandonedError:
            raise asyncio.CancelledError from None
        finally:
            pacer.abandoned = True
            self._current.discard(pacer)

    def close(self) -> None:
        """Give up what is in progress, and what waits. Returns at once."""
        for pacer in self._current:
            pacer.abandoned = True
        self._executor.shutdown(wait=False, cancel_futures=True)
