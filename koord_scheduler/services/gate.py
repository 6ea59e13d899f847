"""The way in to a plain port: whoever can reach it may connect, and holds few places, few bytes,
and each place for seconds only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable

from koord_scheduler.webhook.acceptor import Acceptor
from koord_scheduler.webhook.line import Http, Line
from koord_scheduler.webhook.turns import Peer
from koordlet.serving.listener import Slot, Slots

PLACES, PLACES_OF_ONE = 48, 32
"""Most connections of a port, and of one address. Each port has its own: health waits for nobody
who reads metrics."""
MOST_REQUEST_BYTES = 12 << 10
"""A request with its head and its body."""
MOST_HELD_BYTES = 12 << 20
"""Answers that are being read. Where they are more, the one that has been read for longest goes."""
_BEGINS = b" HTTP/"


class PlainLine(Line):
    """One connection. Nobody who asks for health or metrics has more to say before the answer."""

    def data_received(self, data: bytes) -> None:
        if data.count(_BEGINS) > 1:
            self.drop("pipelined")
        elif self.held_bytes + len(data) > MOST_REQUEST_BYTES:
            self.drop("too large")
        else:
            super().data_received(data)

    def answers(self, size_bytes: int) -> None:
        """Note that it has so many bytes to read."""
        self._slot.progress()
        self._hold(size_bytes)


class Gate:
    """``http`` makes what reads HTTP from a connection. ``dropped`` counts connections that were
    ended here, by reason."""

    def __init__(self, http: Callable[[], Http]) -> None:
        self.dropped: Counter[str] = Counter()
        self._http = http
        self._slots = Slots(PLACES, PLACES_OF_ONE)
        self._lines: dict[Line, Slot] = {}
        self._held_bytes = 0
        self._acceptor = Acceptor(self._take)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int) -> int:
        """Begin to accept. Returns the port. Raises OSError where the address cannot be had."""
        return self._acceptor.open(host, port)

    async def close(self) -> None:
        self._acceptor.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in tuple(self._lines):
            line.drop("closing")

    def _take(self, sock: socket.socket, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(sock, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, peer: Peer) -> None:
        slot = self._slots.take(peer.address, lambda: _hang_up(sock))
        if slot is None:
            self.count("full")
            sock.close()
            return
        line = PlainLine(self, self._http, peer, slot)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: line, sock)
        except OSError:
            self._slots.leave(slot)
            sock.close()

    # What connections tell (`koord_scheduler.webhook.line.Keeper`).

    def settle(self, line: Line, slot: Slot) -> Slot | None:
        slot.drop = lambda: line.drop("full")
        self._lines[line] = slot
        return slot

    def leave(self, line: Line, slot: Slot) -> None:
        self._lines.pop(line, None)
        self._slots.leave(slot)

    def held(self, _line: Line, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        while size_bytes > 0 and self._held_bytes > MOST_HELD_BYTES:
            holding = [each for each in self._lines if each.held_bytes > MOST_REQUEST_BYTES]
            oldest = min(holding, key=lambda each: self._lines[each].idle_since, default=None)
            if oldest is None:
                return
            oldest.drop("memory")

    def count(self, why: str) -> None:
        self.dropped[why] += 1


def _hang_up(sock: socket.socket) -> None:
    """End a connection that asyncio has not told of yet."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
