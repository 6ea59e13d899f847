"""The way in to the webhooks: whoever can reach the port may connect, and costs little until his
review is there.

A connection waits as a bare socket until it speaks TLS, has a deadline in each of its phases
(`line.py`), and gives its place up to a newcomer when all are taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable

from koord_scheduler.webhook.acceptor import Acceptor
from koord_scheduler.webhook.line import HANDSHAKE_S, HELLO_S, Http, Line
from koord_scheduler.webhook.turns import Peer, Turns
from koordlet.serving.listener import Slot, Slots

WAITING, OPEN, FIRST = 256, 144, 256
"""Most connections that do not speak TLS yet, that do, and that have shown the certificate of an
API server: nobody else takes their places."""
WAITING_OF_ONE, OPEN_OF_ONE = 192, 112
"""Most of one address."""
MOST_HELD_BYTES, MOST_HELD_FIRST_BYTES = 10 << 20, 32 << 20
"""Most bytes of requests and answers in memory, of all who do not go first and of all who do."""
_TLS_BUFFER_BYTES = 32 << 10
_HANDSHAKES_AT_ONCE = 4
_HANDSHAKE_COST_S = 0.002
_RECORD = b"\x16\x03"
"""Beginning of a connection of TLS."""


class _Knock:
    """A connection that does not speak TLS yet."""

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        self.sock, self.peer = sock, peer
        self.slot: Slot | None = None
        self.timer: asyncio.TimerHandle | None = None


class Door:
    """``http`` makes what reads HTTP from a connection. ``dropped`` counts connections that were
    ended here, by reason."""

    def __init__(
        self, http: Callable[[], Http], tls: ssl.SSLContext, dropped: Counter[str]
    ) -> None:
        self._http, self._tls, self._dropped = http, tls, dropped
        self._waiting = Slots(WAITING, WAITING_OF_ONE)
        self._open = Slots(OPEN, OPEN_OF_ONE)
        self._first = Slots(FIRST)
        self._knocks: set[_Knock] = set()
        self._shaking: set[socket.socket] = set()
        self._lines: set[Line] = set()
        self._held_bytes = {False: 0, True: 0}
        self._handshakes = Turns(_HANDSHAKES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptor = Acceptor(self._take)
        # asyncio takes 256 KiB for each connection of TLS, before anything has come.
        sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES

    def open(self, host: str, port: int) -> int:
        """Begin to accept. Returns the port. Raises OSError where the address cannot be had."""
        return self._acceptor.open(host, port, defer_s=int(HELLO_S))

    async def close(self) -> None:
        """End what has no request yet; whoever serves HTTP ends the others."""
        self._acceptor.close()
        for knock in tuple(self._knocks):
            self._turn_away(knock, "closing")
        for sock in self._shaking:
            _hang_up(sock)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, sock: socket.socket, peer: Peer) -> None:
        loop, knock = asyncio.get_running_loop(), _Knock(sock, peer)
        turn_away = functools.partial(self._turn_away, knock, "full")
        knock.slot = self._waiting.take(peer.address, turn_away)
        self._knocks.add(knock)
        loop.add_reader(sock, self._greeted, knock)
        knock.timer = loop.call_later(HELLO_S, self._turn_away, knock, "silent")

    def _turn_away(self, knock: _Knock, why: str) -> None:
        self._forget(knock)
        self.count(why)
        knock.sock.close()

    def _forget(self, knock: _Knock) -> None:
        self._knocks.discard(knock)
        asyncio.get_running_loop().remove_reader(knock.sock)
        if knock.timer is not None:
            knock.timer.cancel()
        if knock.slot is not None:
            self._waiting.leave(knock.slot)

    def _greeted(self, knock: _Knock) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(knock.sock)
        begun = b""
        with contextlib.suppress(OSError):
            begun = knock.sock.recv(len(_RECORD), socket.MSG_PEEK)
        if begun != _RECORD:
            self._turn_away(knock, "no TLS")
            return
        task = loop.create_task(self._shake(knock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, knock: _Knock) -> None:
        """The TLS handshake. It begins in its turn, so that who makes many leaves room to others;
        until then it may have to go for others."""
        loop, sock, address = asyncio.get_running_loop(), knock.sock, knock.peer.address
        await self._handshakes.take(knock.peer)
        loop.call_later(_HANDSHAKE_COST_S, self._handshakes.give, knock.peer, _HANDSHAKE_COST_S)
        if knock not in self._knocks:
            return
        self._forget(knock)
        slot = self._open.take(address, lambda: _hang_up(sock))
        if slot is None:
            self.count("full")
            sock.close()
            return
        line = Line(self, self._http, knock.peer, slot)
        self._shaking.add(sock)
        try:
            await loop.connect_accepted_socket(
                lambda: line,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=1.0,
            )
        except OSError as error:
            # Also what the other end has against our certificate. The waiter that the frames hold
            # holds the error: without a cut they, and all of TLS, stay until garbage is collected.
            error.__traceback__ = None
            self.count("handshake")
            self._open.leave(slot)
        finally:
            self._shaking.discard(sock)

    # What connections tell (`line.Keeper`).

    def settle(self, line: Line, slot: Slot) -> Slot | None:
        """The place of a connection whose handshake is done; None where it cannot have one."""
        found: Slot | None = slot
        if line.peer.first:
            self._open.leave(slot)
            found = self._first.take(line.peer.address, lambda: line.drop("full"))
        else:
            slot.drop = lambda: line.drop("full")
        if found is not None:
            self._lines.add(line)
        return found

    def leave(self, line: Line, slot: Slot) -> None:
        self._lines.discard(line)
        (self._first if line.peer.first else self._open).leave(slot)

    def held(self, line: Line, size_bytes: int) -> None:
        """So many bytes more are in memory for a connection. Where that is too much, those that
        hold most are dropped."""
        first = line.peer.first
        self._held_bytes[first] += size_bytes
        most_bytes = MOST_HELD_FIRST_BYTES if first else MOST_HELD_BYTES
        while size_bytes > 0 and self._held_bytes[first] > most_bytes:
            droppable = [each for each in self._lines if each.droppable(first)]
            largest = max(droppable, key=lambda each: each.held_bytes, default=None)
            if largest is None:
                return
            largest.drop("memory")

    def count(self, why: str) -> None:
        self._dropped[why] += 1


def _hang_up(sock: socket.socket) -> None:
    """End a handshake. To cancel it instead leaves the connection open (CPython 3.11.7: `close` of
    a transport that is shaking hands raises TypeError)."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
