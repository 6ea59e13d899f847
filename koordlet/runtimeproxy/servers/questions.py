"""Answers that a held call waits for.

One that is known when the hook server's bytes are read goes on at once: each turn of the event
loop between would cost a pod a part of what the hook itself does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from koordlet.runtimeproxy.contract import Answer


class Pending:
    """Somebody calls ``resolve`` once, unless ``cancel`` came first; that calls ``stop``."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] = _nothing
        self._answered: Callable[[Answer], None] | None = None
        self._found: list[Answer] = []

    def resolve(self, answer: Answer) -> None:
        if self._answered is None:
            self._found.append(answer)
        else:
            self._answered(answer)

    def then(self, answered: Callable[[Answer], None]) -> None:
        if self._found:
            answered(self._found.pop())
        else:
            self._answered = answered

    def cancel(self) -> None:
        self._answered = _ignore
        self.stop()


class InTask:
    """What takes more than one step to find out."""

    def __init__(self, work: Coroutine[Any, Any, Answer]) -> None:
        # The task is the work itself: one that is cancelled before it begins is closed then.
        self._task = asyncio.get_running_loop().create_task(work)

    def then(self, answered: Callable[[Answer], None]) -> None:
        def done(task: asyncio.Task[Answer]) -> None:
            if not task.cancelled():
                answered(_of(task))

        self._task.add_done_callback(done)

    def cancel(self) -> None:
        self._task.cancel()


def _of(task: asyncio.Task[Answer]) -> Answer:
    error = task.exception()
    if error is None:
        return task.result()
    # A fault of ours in understanding a call must not become the pod's: let it pass.
    structlog.get_logger().error("hook_handling_failed", exc_info=error)
    return None


def _nothing() -> None:
    pass


def _ignore(answer: Answer) -> None:
    pass
