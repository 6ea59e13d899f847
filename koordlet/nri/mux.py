"""One socket that carries several byte streams (docs/reference/wire.md 2.2).

A frame is a connection id, a length and a slice of that connection's bytes. Slices are handed on
as they arrive, so nothing is kept here but an unfinished header.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Iterator

from koordlet.nri import frame
from koordlet.nri.errors import ClosedError, WireError

HEADER = struct.Struct(">II")  # connection id, length of the payload
MAX_FRAME_BYTES = frame.HEADER.size + frame.MAX_RECEIVED_BYTES
"""Peers before NRI 0.7 send a whole message as one; later ones stay below 4 MiB + 10."""
GO_BUFFER_BYTES = 4096
"""Through which Go's ttrpc reads the beginning of a message."""
_READ_BYTES = 64 << 10
SEND_TIMEOUT_S = 10.0
TOO_MANY_PODS = "containerd before 1.7.26 tells all pods of a node at once: take a newer one."

Receive = Callable[[memoryview], Awaitable[None]]
Send = Callable[[bytes], Awaitable[None]]


class Decoder:
    """Bytes of the socket -> (connection id, slice of its stream), in order."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._id = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Raises WireError for a frame that is longer than any peer sends."""
        view = memoryview(data)
        while view:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                yield self._id, part
                continue
            missing = HEADER.size - len(self._header)
            self._header += view[:missing]
            view = view[missing:]
            if len(self._header) == HEADER.size:
                self._id, self._left = HEADER.unpack(self._header)
                self._header.clear()
                if self._left > MAX_FRAME_BYTES:
                    raise WireError(
                        f"multiplexer: a frame of {self._left} bytes on connection {self._id}; the "
                        f"most is {MAX_FRAME_BYTES}. {TOO_MANY_PODS} Or is it no NRI runtime?"
                    )


def frames(connection_id: int, message: bytes) -> bytes:
    """``message``, one whole ttrpc message, in frames that a Go peer can read.

    Go refuses a frame that is longer than the buffer it reads into. It begins each message with a
    buffer of 4096 bytes and reads the rest into one that fits: so what does not fit the first goes
    into a second frame. Two for any message also keep its queue of 256 frames short.
    """
    head, rest = message[:GO_BUFFER_BYTES], message[GO_BUFFER_BYTES:]
    parts = [HEADER.pack(connection_id, len(head)), head]
    if rest:
        parts += [HEADER.pack(connection_id, len(rest)), rest]
    return b"".join(parts)


class Trunk:
    """Both ends of the multiplexer are alike. Open every id before ``run``: what arrives for
    others is dropped, as the protocol wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._receivers: dict[int, Receive] = {}
        self._sending = asyncio.Lock()

    def open(self, connection_id: int, receive: Receive) -> None:
        """``receive`` gets the slices one after the other; while it waits, nothing is read."""
        self._receivers[connection_id] = receive

    def sender(self, connection_id: int) -> Send:
        """Sends one whole ttrpc message. Raises ClosedError."""

        async def send(message: bytes) -> None:
            await self._send(frames(connection_id, message))

        return send

    async def run(self) -> None:
        """Read until the peer closes. Raises WireError and OSError."""
        decoder = Decoder()
        while data := await self._reader.read(_READ_BYTES):
            for connection_id, part in decoder.feed(data):
                receive = self._receivers.get(connection_id)
                if receive is not None:
                    await receive(part)

    async def close(self) -> None:
        """At once: unsent bytes are lost, a peer that does not read cannot hold it up."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):  # run() or a send has told how it ended
            await self._writer.wait_closed()

    async def _send(self, data: bytes) -> None:
        # One message at a time, so that no more than one waits in memory for a slow peer.
        async with self._sending:
            if self._writer.is_closing():
                raise ClosedError("the connection is closed")
            self._writer.write(data)
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._writer.drain()
            except TimeoutError:
                self._writer.transport.abort()
                raise ClosedError(f"the peer has read nothing for {SEND_TIMEOUT_S:g} s") from None
            except OSError as error:
                raise ClosedError(f"the connection broke: {error}") from error
