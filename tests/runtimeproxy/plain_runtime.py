"""A runtime that is HTTP/2 and little else: it answers each unary call with its own request.

gRPC's servers defend themselves, spend more on an attack than the proxy does, and run in the same
event loop as the test. This one takes what comes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, data_of, make

_STATUS_200 = b"\x88"
_TYPE = b"\0\x0ccontent-type\x10application/grpc"
_OK = b"\0\x0bgrpc-status\x010"
KEPT_BYTES = 1 << 20


class Plain(asyncio.Protocol):
    """``seen`` is called with the body of each call before it is answered."""

    def __init__(self, seen: Callable[[bytes], None], credit: bool) -> None:
        self._seen = seen
        self._credit = credit
        self._reader = FrameReader(from_client=True)
        self._bodies: dict[int, bytearray] = {}
        self._out: list[bytes] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(make(frames.SETTINGS, 0, 0))

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self._take(frame)
        self._transport.write(b"".join(self._out))
        self._out.clear()

    def _take(self, frame: Frame) -> None:
        end = bool(frame.flags & frames.END_STREAM)
        number = frame.stream
        if frame.kind == frames.HEADERS:
            self._bodies[number] = bytearray()
        elif frame.kind == frames.DATA:
            size = len(frame.raw) - frames.HEAD_BYTES
            body = self._bodies.get(number)
            if size and self._credit:
                self._out.append(frames.window_update(0, size))
            if body is None:
                return
            if size and self._credit and not end:
                self._out.append(frames.window_update(number, size))
            if len(body) < KEPT_BYTES:
                body += data_of(frame)
        elif frame.kind == frames.RST_STREAM:
            self._bodies.pop(number, None)
            return
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            self._out.append(make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK:
            self._out.append(make(frames.PING, frames.ACK, 0, frame.raw[frames.HEAD_BYTES :]))
        if frame.kind in (frames.HEADERS, frames.DATA) and end:
            self._answer(number)

    def _answer(self, number: int) -> None:
        body = bytes(self._bodies.pop(number))
        self._seen(body)
        last = frames.END_HEADERS | frames.END_STREAM
        self._out += (
            make(frames.HEADERS, frames.END_HEADERS, number, _STATUS_200 + _TYPE),
            make(frames.DATA, 0, number, body[: frames.DATA_BYTES]),
            make(frames.HEADERS, last, number, _OK),
        )


@asynccontextmanager
async def plain_runtime(path: str, *, credit: bool = True) -> AsyncIterator[Counter[bytes]]:
    """How often each body was seen."""
    seen: Counter[bytes] = Counter()

    def count(body: bytes) -> None:
        seen[body] += 1

    server = await asyncio.get_running_loop().create_unix_server(lambda: Plain(count, credit), path)
    try:
        yield seen
    finally:
        server.close()
