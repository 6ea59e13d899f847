"""One call at a time beside the event loop, for what may hang: a driver, a card's firmware."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger()

ANSWERS_WITHIN_S = 5.0
"""Later than that it hangs. Without the persistence daemon NVIDIA's driver takes up to two seconds
to begin with a card."""


class Aside(Generic[T]):
    """Each call has a daemon thread: one that hangs keeps neither the caller waiting nor the
    process from ending. It stays as long as it hangs, so no second one is begun meanwhile.

    ``begun_s``: what the caller's clock said when the last call began. ``cpu_s``: CPU time of the
    last call that has ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._after: list[Callable[[], object]] = []
        self._result: T | None = None
        self._error: Exception | None = None
        self.begun_s = 0.0
        self.cpu_s = 0.0

    @property
    def runs(self) -> bool:
        """A call was begun, and its result has not been taken."""
        return self._thread is not None

    @property
    def has_ended(self) -> bool:
        return self._thread is not None and self._ended.is_set()

    def is_late(self, now_s: float) -> bool:
        """Whether a call goes on that should have ended."""
        return self.runs and not self.has_ended and now_s - self.begun_s >= ANSWERS_WITHIN_S

    def start(self, work: Callable[[], T], now_s: float = 0.0) -> None:
        """Returns at once. Only where none runs; the result of the last one is dropped."""
        if self._thread is not None and not self._ended.is_set():
            raise RuntimeError(f"{self._name} runs already")
        self._begin(work, now_s)

    def finish(self, work: Callable[[], object], now_s: float = 0.0) -> None:
        """Returns at once. ``work`` runs in the thread of the call that goes on, after it; where
        none does, as a call of its own. Its result is dropped; what it raises is logged."""
        with self._lock:
            if self.runs and not self.has_ended:
                self._after.append(work)
                return
        self._begin(lambda: self._end(work), now_s)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        return self._ended.wait(seconds)

    def take(self) -> T:
        """The result of the call; raises what it has raised. Only where ``has_ended``."""
        result, error = self._result, self._error
        self._thread = self._result = self._error = None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # there is one where there is no error

    def _begin(self, work: Callable[[], Any], now_s: float) -> None:
        self._result = self._error = None
        self._ended.clear()
        self.begun_s = now_s
        arguments = (work,)
        self._thread = threading.Thread(
            target=self._run, args=arguments, name=self._name, daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        before = time.thread_time()
        try:
            self._result = work()
        except Exception as error:  # it is the caller's, who takes it
            self._error = error
        self.cpu_s = time.thread_time() - before
        while True:
            with self._lock:
                if not self._after:
                    self._ended.set()
                    return
                work = self._after.pop(0)
            self._end(work)

    def _end(self, work: Callable[[], object]) -> None:
        """There is nobody to take what it raises."""
        try:
            work()
        except Exception as error:
            log.warning(
                "could not be ended", call=self._name, error=f"{type(error).__name__}: {error}"
            )


@dataclass(frozen=True)
class Asides:
    """A part of the daemon and not of collectors: those of a new configuration find a call that
    hangs, and begin no second one beside it."""

    gpu: Aside[Any] = field(default_factory=lambda: Aside("gpu"))
    rdma: Aside[Any] = field(default_factory=lambda: Aside("rdma"))
