"""The runtime's socket: whether somebody answers there, and the first moment that somebody does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

PROBE_S: Final = 0.15
_CONNECT_S: Final = 1.0

P = TypeVar("P", bound=asyncio.Protocol)


class Backend:
    """``on_back`` is called each time the runtime answers again, and at the first time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.error = "not tried yet"
        """Why it cannot be reached; empty when it can."""
        self.changed_at = 0.0
        self.on_back: list[Callable[[], None]] = []
        self._prober: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    @property
    def trouble(self) -> str:
        """For callers whose calls cannot be served."""
        return (
            f"koordlet runtime-proxy: no container runtime at {self.path}: {self.error}; "
            "see whether it runs and listens there"
        )

    async def connect(self, protocol: P) -> asyncio.Transport | None:
        """None when nobody answers; then somebody looks until there is."""
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await asyncio.wait_for(
                loop.create_unix_connection(lambda: protocol, self.path), _CONNECT_S
            )
        except (OSError, TimeoutError) as error:
            self.lost(_text(error))
            return None
        return transport

    def lost(self, error: str = "it has closed its connections") -> None:
        """Somebody could not connect, or a connection broke off: look until it answers."""
        if self._prober is None:
            loop = asyncio.get_running_loop()
            self.error, self.changed_at = error, loop.time()
            self._prober = loop.create_task(self._probe())

    def start(self) -> None:
        self.lost(self.error)

    def close(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            self._prober = None

    async def _probe(self) -> None:
        reported = False
        loop = asyncio.get_running_loop()
        while True:
            try:
                transport, _ = await asyncio.wait_for(
                    loop.create_unix_connection(asyncio.Protocol, self.path), _CONNECT_S
                )
            except (OSError, TimeoutError) as error:
                self.error = _text(error)
                if not reported:
                    reported = True
                    self._log.warning("runtime_not_reachable", path=self.path, error=self.error)
                await asyncio.sleep(PROBE_S)
                continue
            transport.close()
            self.error, self.changed_at, self._prober = "", loop.time(), None
            self._log.info("runtime_reachable", path=self.path)
            for told_of in self.on_back:
                told_of()
            return


def _text(error: OSError | TimeoutError) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"no connection within {_CONNECT_S:g} s"
