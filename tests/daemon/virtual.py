"""An event loop on time that others keep, such as the fake kernel's: when nothing is ready, time
moves to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Timed(Protocol):
    """FakeHost is one."""

    def monotonic(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class _Selector(selectors.DefaultSelector):
    """Never waits: what is ready is ready, else the host's time moves on by the timeout."""

    def __init__(self, host: Timed) -> None:
        super().__init__()
        self._host = host

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:  # no timer at all: something outside, such as a thread, must come
            return super().select(1.0)
        ready = super().select(0)
        if not ready and timeout > 0:
            # A little more, since the loop's clock is coarser than its comparison.
            self._host.advance(timeout + 1e-6)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, host: Timed) -> None:
        super().__init__(_Selector(host))
        self._host = host

    def time(self) -> float:
        return self._host.monotonic()


def run_virtually(host: Timed, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(host)) as runner:
        return runner.run(main)
