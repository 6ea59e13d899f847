"""Scans for cold memory, beside the event loop.

A thread drives a scan in slices of half a millisecond and rests after each, so that it takes a
hundredth of a core however much memory there is: a scan of a large node takes longer instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from koordlet.kernel.cold.cold import Cold, Scan

SLICE_S = 0.0005
"""The interpreter is not held longer, but for a single call of the kernel, which frees it."""
SHARE = 0.01
"""Of a core."""


class Finished(NamedTuple):
    """``error``: why there is no result. ``cpu_s``: what the thread used."""

    found: dict[str, Cold]
    error: Exception | None
    cpu_s: float


def _beside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="cold", daemon=True).start()


class Worker:
    """All but the scan itself is for the thread of the event loop. A process that ends does not
    wait for it."""

    def __init__(
        self,
        start: Callable[[Callable[[], None]], None] = _beside,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._start = start
        self._cpu_seconds = cpu_seconds
        self._stop = threading.Event()
        self._finished: list[Finished] = []
        self.is_busy = False

    def begin(self, scan: Scan) -> None:
        """Only while it is not busy."""
        self.is_busy = True
        stop, finished = self._stop, self._finished
        self._start(lambda: finished.append(self._drive(scan, stop)))

    def take(self) -> Finished | None:
        """What has ended since the last call."""
        if not self._finished:
            return None
        self.is_busy = False
        return self._finished.pop()

    def stop(self) -> None:
        """The scan under way ends after its slice, and nobody hears of it."""
        self._stop.set()
        self._stop, self._finished, self.is_busy = threading.Event(), [], False

    def _drive(self, scan: Scan, stop: threading.Event) -> Finished:
        began = slice_began = self._cpu_seconds()
        error: Exception | None = None
        found: dict[str, Cold] = {}
        try:
            while True:
                next(scan)
                used = self._cpu_seconds() - slice_began
                if used < SLICE_S:
                    continue
                if stop.wait(used / SHARE - used):
                    scan.close()
                    break
                slice_began = self._cpu_seconds()
        except StopIteration as end:
            found = end.value
        except Exception as failure:  # told by the collector, as its own would be
            error = failure
        return Finished(found, error, self._cpu_seconds() - began)
