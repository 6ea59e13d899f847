"""The threads that work for callers of the local API, so that the event loop does not.

They rest between slices (``kernel/background.py``), so the loop never waits longer for one than a
slice. There is one for what is searched for, so that ten callers cost the loop no more than one,
and one for what is only to be encoded, so that `status` does not wait for a search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from koordlet.kernel.background import GivenUpError, Pace, Pause

T = TypeVar("T")


class Worker:
    """Takes one piece of work after the other, in the order in which they came; beside it what is
    ``quick``, in the same way."""

    def __init__(self) -> None:
        # The threads themselves are started by the first callers.
        self._executors = {
            quick: ThreadPoolExecutor(1, thread_name_prefix="koordlet-api")
            for quick in (False, True)
        }
        self._current: set[Pace] = set()

    async def run(self, work: Callable[[Pause], T], *, quick: bool = False) -> T:
        """What ``work`` returns, or raises. It ends at its next pause when the caller is cancelled.
        Raises CancelledError when the worker is closed meanwhile."""
        pace = Pace()
        self._current.add(pace)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executors[quick], work, pace.pause)
        except GivenUpError:
            raise asyncio.CancelledError from None
        finally:
            pace.given_up = True
            self._current.discard(pace)

    def close(self) -> None:
        """Give up what is in progress, and what waits. Returns at once."""
        for pace in self._current:
            pace.given_up = True
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)
