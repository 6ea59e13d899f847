"""Keys that wait for work: each once, and none by two workers at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable

import structlog

from koordlet.kube.backoff import Backoff
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError

UNFORESEEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What an object that no check foresaw may raise. It must not stop the work on all the others, or
whoever may write one object stops a cluster."""
DEFECT_S = 60.0
"""Until such a key comes again, and between two lines about it in the log."""
_log = structlog.get_logger()
Work = Callable[[str], Awaitable[float | None]]


class Queue:
    """``work(key)`` returns when the key shall come again by itself, in seconds; None: when it is
    added. A KubeError puts the key back, later each time.

    ``on_error`` hears every error with its key. ``retry`` may name other errors and how long to
    wait after them (None: an error that is no matter of this queue). What an object may cause that
    nobody foresaw (UNFORESEEN) is logged and costs its own key alone; the rest ends ``run``.
    """

    def __init__(
        self,
        work: Work,
        *,
        workers: int = 4,
        on_error: Callable[[str, Exception], None] = lambda key, error: None,
        retry: Callable[[Exception], float | None] = lambda error: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._work, self._workers = work, workers
        self._on_error, self._retry, self._draw = on_error, retry, draw
        self._waiting: dict[str, None] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._filled = asyncio.Event()
        self._said_s = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def add(self, key: str) -> None:
        if key in self._busy:
            self._again.add(key)
            return
        self._cancel_timer(key)
        self._waiting.setdefault(key)
        self._filled.set()

    def add_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.add(key)

    def add_after(self, key: str, wait_s: float) -> None:
        """The earlier of two times counts."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + wait_s
        old = self._timers.get(key)
        if key in self._waiting or (old is not None and old.when() <= due_s):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(due_s, self._due, key)

    def drop(self, key: str) -> None:
        """It is gone; who works on it ends by itself."""
        self._cancel_timer(key)
        self._waiting.pop(key, None)
        self._again.discard(key)
        self._backoffs.pop(key, None)

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._worker())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _worker(self) -> None:
        while True:
            while not self._waiting:
                self._filled.clear()
                await self._filled.wait()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy.add(key)
            try:
                again_s = await self._one(key)
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif again_s is not None:
                self.add_after(key, again_s)
            await asyncio.sleep(0)  # a thousand keys in a row leave room for others

    async def _one(self, key: str) -> float | None:
        try:
            again_s = await self._work(key)
        except (KubeError, CredentialsError) as error:
            self._on_error(key, error)
            backoff = self._backoffs.setdefault(key, Backoff(self._draw))
            asked_s = (error.retry_after_s or 0.0) if isinstance(error, RefusedError) else 0.0
            return max(backoff.next_s(), asked_s * (1.0 + 0.5 * self._draw()))
        except Exception as error:
            wait_s = self._retry(error)
            if wait_s is None:
                if not isinstance(error, UNFORESEEN):
                    raise
                self._say_defect(key, error)
                wait_s = DEFECT_S
            self._on_error(key, error)
            return wait_s
        self._backoffs.pop(key, None)
        return again_s

    def _say_defect(self, key: str, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= DEFECT_S:
            self._said_s = now_s
            _log.error("a defect: please report it", key=key, exc_info=error)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
