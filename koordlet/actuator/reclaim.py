"""Memory taken back from cgroups, beside the event loop.

The kernel answers a write to ``memory.reclaim`` only when it is done, which can be long where
pages must go to a slow disk. So one worker thread asks for small slices, and gives a request up
when its time is over: whoever still wants more says so in the next decision.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from koordlet.actuator.outcome import describe, is_gone
from koordlet.decision.plan import Reclaim
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.reclaim import reclaim

SLICE_BYTES = 4 << 20
TIME_S = 0.2
"""Of one request."""


class Reclaimed(msgspec.Struct, frozen=True):
    """``size_bytes``: what was taken. ``error``: why the kernel refused, else empty; a cgroup
    that has gone is no error."""

    owner: str
    reclaim: Reclaim
    size_bytes: int
    seconds: float
    error: str = ""


def _beside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="reclaim", daemon=True).start()


class Reclaimer:
    """``take`` and ``ended`` are for the thread of the event loop. ``start`` runs the worker, which
    ends when nothing waits; a process that ends does not wait for it."""

    def __init__(
        self, host: Host, layout: Layout, start: Callable[[Callable[[], None]], None] = _beside
    ) -> None:
        self._host = host
        self._layout = layout
        self._start = start
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Reclaim]] = {}
        self._working = False
        self._ended: deque[Reclaimed] = deque()

    def take(self, owner: str, wanted: Sequence[Reclaim]) -> None:
        """What ``owner`` wants now, in this order; what it wanted before and did not get yet is
        dropped."""
        with self._lock:
            self._waiting[owner] = deque(wanted)
            if self._working or not wanted:
                return
            self._working = True
        self._start(self._work)

    def ended(self) -> list[Reclaimed]:
        """What has been done since the last call."""
        found = []
        while self._ended:
            found.append(self._ended.popleft())
        return found

    def _work(self) -> None:
        while (following := self._next()) is not None:
            self._ended.append(self._take_back(*following))

    def _next(self) -> tuple[str, Reclaim] | None:
        with self._lock:
            for owner, waiting in self._waiting.items():
                if waiting:
                    return owner, waiting.popleft()
            self._working = False
            return None

    def _take_back(self, owner: str, wanted: Reclaim) -> Reclaimed:
        started = now = self._host.monotonic()
        taken, error = 0, ""
        while taken < wanted.size_bytes and now - started < TIME_S:
            size = min(SLICE_BYTES, wanted.size_bytes - taken)
            try:
                if not reclaim(self._host, self._layout, wanted.cgroup, size):
                    break
            except (OSError, ValueError) as refusal:
                error = "" if is_gone(refusal) else describe(refusal, wanted.cgroup)
                break
            finally:
                now = self._host.monotonic()
            taken += size
        return Reclaimed(owner, wanted, taken, now - started, error)
