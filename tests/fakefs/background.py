"""Work beside the event loop, done at once: a test knows when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from koordlet.kernel.background import Pause

T = TypeVar("T")


class AtOnce:
    """See ``koordlet.kernel.background.Background``."""

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(_nothing))
        except Exception as error:  # as a thread pool: whoever asks for the result gets it
            future.set_exception(error)
        return future

    def close(self, last: Callable[[], None]) -> None:
        last()


def _nothing() -> None:
    """Nobody waits."""
