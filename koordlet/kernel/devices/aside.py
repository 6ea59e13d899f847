"""One call at a time beside the event loop, for what may hang: a driver, a card's firmware."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Each call has a daemon thread: one that hangs keeps neither the caller waiting nor the
    process from ending. It stays as long as it hangs, so no second one is begun meanwhile.

    ``cpu_s``: CPU time of the last call that has ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: Exception | None = None
        self.cpu_s = 0.0

    @property
    def runs(self) -> bool:
        """A call was begun, and nobody has taken what it brought."""
        return self._thread is not None

    @property
    def has_ended(self) -> bool:
        return self._thread is not None and self._ended.is_set()

    def start(self, work: Callable[[], T]) -> None:
        """Returns at once. Only where none runs; what the last one brought is dropped."""
        if self._thread is not None and not self._ended.is_set():
            raise RuntimeError(f"{self._name} runs already")
        self._result = self._error = None
        self._ended.clear()
        arguments = (work,)
        self._thread = threading.Thread(
            target=self._run, args=arguments, name=self._name, daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        return self._ended.wait(seconds)

    def take(self) -> T:
        """What the call has returned; raises what it has raised. Only where ``has_ended``."""
        result, error = self._result, self._error
        self._thread = self._result = self._error = None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # there is one where there is no error

    def _run(self, work: Callable[[], T]) -> None:
        before = time.thread_time()
        try:
            self._result = work()
        except Exception as error:  # it is the caller's, who takes it
            self._error = error
        self.cpu_s = time.thread_time() - before
        self._ended.set()
