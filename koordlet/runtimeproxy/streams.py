"""One stream of a link, and one end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from koordlet.runtimeproxy.contract import Call, Question

MAX_RESPONSE_BYTES: Final = 64 << 10
"""Of what is kept to learn an id from; responses themselves pass whatever their size."""
_LINGER_S: Final = 2.0
_LATER_BYTES: Final = 16 << 10


@dataclass(slots=True)
class Held:
    """Of a stream whose request stops here until the hooks have spoken."""

    until_s: float
    """When its request must be complete, in ``loop.time()``."""
    body: bytearray = field(default_factory=bytearray)
    charged: int = 0
    """Bytes that the connection's account has for it."""
    response: bytearray = field(default_factory=bytearray)
    call: Call | None = None
    question: Question | None = None
    complete_at: float = 0.0
    """When its last byte came, in ``loop.time()``."""
    sent: bool = False


@dataclass(slots=True)
class Stream:
    id: int
    path: str
    held: Held | None = None
    window: int = 0
    """What the client may send beyond the initial window, less what it sent."""
    owed: int = 0
    """Bytes that stopped here and were not given back to the client yet."""
    half_closed: bool = False
    """The client has ended its request."""
    answered: bool = False
    """The client has got response headers."""


class Side(asyncio.Protocol):
    """One end of a link: collects what goes there, so that one turn makes one write."""

    def __init__(
        self,
        on_data: Callable[[bytes], None],
        on_lost: Callable[[], None],
        on_full: Callable[[], None],
    ) -> None:
        self._on_data = on_data
        self._on_lost = on_lost
        self._on_full = on_full
        self.out: list[bytes | memoryview] = []
        self._urgent = False
        self._later_bytes = 0
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self.full = False
        """Its peer does not read, and what waits for it is as much as should wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._on_lost()

    def pause_writing(self) -> None:
        self.full = True
        self._on_full()

    def resume_writing(self) -> None:
        self.full = False
        self._on_full()

    def read(self, wanted: bool) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def send(self, raw: bytes | memoryview | None) -> None:
        """With the next flush; None is nothing."""
        if raw is not None:
            self.out.append(raw)
            self._urgent = True

    def send_all(self, raw: list[bytes]) -> None:
        if raw:
            self.out += raw
            self._urgent = True

    def send_later(self, raw: bytes | memoryview) -> None:
        """With whatever is sent next: the peer need not wake up for it."""
        self.out.append(bytes(raw))  # not a view, which would keep all that was read with it
        self._later_bytes += len(raw)

    @property
    def urgent(self) -> bool:
        return self._urgent or self._later_bytes >= _LATER_BYTES

    def flush(self, *, all_of_it: bool = False) -> None:
        if self.out and (all_of_it or self.urgent) and self.transport is not None:
            self.transport.write(b"".join(self.out))
            self.out.clear()
            self._urgent, self._later_bytes = False, 0

    def close(self) -> None:
        if self.transport is not None:
            close_soon(self.transport)

    def abort(self) -> None:
        """Although the peer may not have read the last words."""
        if self.transport is not None:
            self.transport.abort()


def close_soon(transport: asyncio.Transport) -> None:
    """The peer closes when it has read the last words. Until then what it still writes is taken,
    because a peer whose write fails may not read them; but nobody waits for it long."""
    if not transport.is_closing():
        transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
