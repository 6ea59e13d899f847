"""One stream of a link, and one end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from koordlet.runtimeproxy.contract import Call

MAX_RESPONSE_BYTES: Final = 64 << 10
"""Of what is kept to learn an id from; responses themselves pass whatever their size."""
_LINGER_S: Final = 2.0


@dataclass(slots=True)
class Held:
    """Of a stream whose request stops here until the hooks have spoken."""

    body: bytearray = field(default_factory=bytearray)
    response: bytearray = field(default_factory=bytearray)
    call: Call | None = None
    task: asyncio.Task[None] | None = None
    complete_at: float = 0.0
    """When its last byte came, in ``loop.time()``."""
    sent: bool = False


@dataclass(slots=True)
class Stream:
    id: int
    path: str
    held: Held | None = None
    answered: bool = False
    """The client has got response headers."""


class Side(asyncio.Protocol):
    """One end of a link: collects what goes there, so that one turn makes one write."""

    def __init__(self, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_lost = on_lost
        self.out: list[bytes | memoryview] = []
        self.other: Side | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def flush(self) -> None:
        if self.out and self.transport is not None:
            self.transport.write(b"".join(self.out))
            self.out.clear()

    def close(self) -> None:
        if self.transport is not None:
            close_soon(self.transport)


def close_soon(transport: asyncio.Transport) -> None:
    """The peer closes when it has read the last words. Until then what it still writes is taken,
    because a peer whose write fails may not read them; but nobody waits for it long."""
    if not transport.is_closing():
        transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
