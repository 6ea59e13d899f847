"""One connection of the webhooks between TLS and HTTP: its phase, its deadline, its bytes."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
from collections.abc import Callable, Iterator
from typing import Protocol

from koord_scheduler.webhook.turns import Peer
from koordlet.serving.listener import Slot

HELLO_S, HANDSHAKE_S, READ_S, WRITE_S, IDLE_S = 5.0, 5.0, 5.0, 5.0, 100.0
"""Deadlines: until TLS begins, of the handshake, of a request from its first byte to its last, of
an answer, until the next request. API servers close after 90 s themselves."""


class Http(Protocol):
    """What reads requests from a connection and answers them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class Keeper(Protocol):
    """The door, for a connection."""

    def settle(self, line: Line, slot: Slot) -> Slot | None: ...
    def leave(self, line: Line, slot: Slot) -> None: ...
    def held(self, line: Line, size_bytes: int) -> None: ...
    def count(self, why: str) -> None: ...


class Phase(enum.Enum):
    IDLE, READS, WAITS, WORKS = range(4)


_NOBODY = asyncio.Protocol()


class Line(asyncio.Protocol):
    """``peer`` is known in full once the handshake is done; ``make_http`` is called then."""

    def __init__(self, door: Keeper, make_http: Callable[[], Http], peer: Peer, slot: Slot) -> None:
        self.peer, self.held_bytes = peer, 0
        self._door, self._make_http, self._slot = door, make_http, slot
        self._http: Http = _NOBODY
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._phase = Phase.IDLE
        self._unsent_bytes = 0

    # What TLS tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if transport.get_extra_info("peercert"):
            self.peer = self.peer._replace(first=True)
        slot = self._door.settle(self, self._slot)
        if slot is None:
            transport.abort()
            return
        self._slot = slot
        self._http = self._make_http()
        self._http.connection_made(transport)
        self._enter(Phase.IDLE, IDLE_S)

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.IDLE:
            self._enter(Phase.READS, READ_S)
        elif self._phase is not Phase.READS:
            # Nobody who waits for an answer has more to say.
            self.drop("pipelined")
            return
        self._hold(len(data))
        if self._transport is not None:
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        """The other end does not take its answer."""
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._deadline(WRITE_S)
            self._hold(self._unsent_bytes)
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._release(self._unsent_bytes)
        self._unsent_bytes = 0
        if self._phase is Phase.IDLE:
            self._deadline(IDLE_S)
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._release(self.held_bytes)
        self._door.leave(self, self._slot)
        self._http.connection_lost(exc)
        self._http = _NOBODY

    # What the server tells.

    def waits(self) -> None:
        """Note that its request is there in full."""
        self._enter(Phase.WAITS, None)

    @contextlib.contextmanager
    def works(self) -> Iterator[None]:
        """Keep it while its request is worked on: that would not end with it."""
        self._enter(Phase.WORKS, None)
        self._slot.spared_until = math.inf
        try:
            yield
        finally:
            self._slot.spared_until = -math.inf
            self._enter(Phase.WAITS, None)

    def rests(self) -> None:
        """Note that its request is answered, which alone is progress: who only begins things has
        to go before a newcomer."""
        self._slot.progress()
        self._release(self.held_bytes - self._unsent_bytes)
        self._enter(Phase.IDLE, IDLE_S)

    def droppable(self, first: bool) -> bool:
        """Whether to drop it helps those of its kind."""
        return self.peer.first is first and bool(self.held_bytes) and self._phase is not Phase.WORKS

    def drop(self, why: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._door.count(why)
            self._release(self.held_bytes)
            transport.abort()

    def _hold(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._door.held(self, size_bytes)

    def _release(self, size_bytes: int) -> None:
        size_bytes = min(size_bytes, self.held_bytes)
        self.held_bytes -= size_bytes
        self._door.held(self, -size_bytes)

    def _enter(self, phase: Phase, deadline_s: float | None) -> None:
        self._phase = phase
        self._deadline(deadline_s)

    def _deadline(self, after_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if after_s is not None and self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, self.drop, "slow")
