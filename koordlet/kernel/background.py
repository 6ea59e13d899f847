"""Calls that may block, in a thread beside the event loop.

Python runs one thread at a time. A thread that is always busy takes its turn whenever the loop
waits for a system call, and keeps it for up to 5 ms (``sys.getswitchinterval``): a tick with some
hundred reads would take seconds. So work calls ``pause`` often, which rests for ``REST_S`` between
slices of ``SLICE_S``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

SLICE_S = 0.0005
REST_S = 0.001

T = TypeVar("T")
Pause = Callable[[], None]
"""To be called several times a millisecond."""


def no_pause() -> None:
    """For work on the event loop itself, or where there is none."""


class GivenUpError(Exception):
    """Raised by ``pause``: nobody waits for the result any more."""


class Pace:
    """The slices of one piece of work."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.given_up = False

    def pause(self) -> None:
        if self.given_up:
            raise GivenUpError
        if time.perf_counter() - self._began_s >= SLICE_S:
            time.sleep(REST_S)
            self._began_s = time.perf_counter()


class Background(Protocol):
    """One piece of work after the other, in the order in which they came."""

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        """``delay_s``: so long it waits before it begins."""
        ...

    def close(self, last: Callable[[], None]) -> None:
        """Give up what goes on or waits, then run ``last`` and end. Returns at once."""
        ...


class ThreadBackground:
    """A thread, started by the first piece of work."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"koordlet-{name}")
        self._paces: set[Pace] = set()
        self._closing = threading.Event()

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        pace = Pace()
        self._paces.add(pace)

        def paced() -> T:
            try:
                if delay_s:
                    self._closing.wait(delay_s)
                return work(pace.pause)
            finally:
                self._paces.discard(pace)

        return self._executor.submit(paced)

    def close(self, last: Callable[[], None]) -> None:
        self._closing.set()
        for pace in tuple(self._paces):
            pace.given_up = True
        with contextlib.suppress(RuntimeError):  # closed before
            self._executor.submit(last)
        self._executor.shutdown(wait=False)
