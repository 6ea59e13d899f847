"""HTTP/2 for clients that come while the runtime is away: each call gets Unavailable at once.

When the runtime is back the client is told to reconnect (GOAWAY), which gRPC does without a pause
because this connection worked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from koordlet.runtimeproxy import frames
from koordlet.runtimeproxy.contract import Meter
from koordlet.runtimeproxy.frames import Frame, FrameReader, ProtocolError
from koordlet.runtimeproxy.headers import GRPC_UNAVAILABLE, HeaderReader, trailers
from koordlet.runtimeproxy.streams import close_soon


class Responder(asyncio.Protocol):
    """``why`` gives the text of the answers, ``on_end`` is told when the client has gone."""

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        why: Callable[[], str],
        meter: Meter,
        on_end: Callable[[Responder], None],
    ) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._why = why
        self._meter = meter
        self._on_end = on_end
        self._reader = FrameReader(from_client=True)
        self._headers = HeaderReader()
        self._last_stream = 0
        self._out: list[bytes] = []
        self._closed = False

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            for frame in self._reader.feed(data):
                self._answer(frame)
        except ProtocolError as error:
            self._meter.broken(f"client: {error}")
            self._end(error.code, str(error))
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end(self)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def dismiss(self) -> None:
        if not self._closed:
            self._end(frames.NO_ERROR)

    def _end(self, code: int, text: str = "") -> None:
        self._closed = True
        self._out.append(frames.goaway(self._last_stream, code, text))
        self._flush()
        close_soon(self._transport)

    def _flush(self) -> None:
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _answer(self, frame: Frame) -> None:
        if frame.kind == frames.CLIENT_PREFACE:
            self._out.append(frames.make(frames.SETTINGS, 0, 0))
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            self._out.append(frames.make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK:
            payload = bytes(frame.raw[frames.HEAD_BYTES :])
            self._out.append(frames.make(frames.PING, frames.ACK, 0, payload))
        elif frame.kind == frames.HEADERS:
            self._refuse(frame)
        elif frame.kind == frames.DATA and len(frame.raw) > frames.HEAD_BYTES:
            size = len(frame.raw) - frames.HEAD_BYTES
            self._out.append(frames.window_update(0, size))

    def _refuse(self, frame: Frame) -> None:
        path = self._headers.read(frame).get(b":path", b"").decode("utf-8", "replace")
        if frame.stream <= self._last_stream:
            return
        self._last_stream = frame.stream
        self._meter.called(path, held=False)
        self._meter.ended(path, GRPC_UNAVAILABLE)
        self._out.append(trailers(frame.stream, GRPC_UNAVAILABLE, self._why(), alone=True))
