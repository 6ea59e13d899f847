"""HTTP/2 for clients that come while the runtime is away: each call gets Unavailable at once.

When the runtime is back the client is told to reconnect (GOAWAY), which gRPC does without a pause
because this connection worked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from koordlet.runtimeproxy.contract import Meter
from koordlet.runtimeproxy.http2.headers import GRPC_UNAVAILABLE, trailers
from koordlet.runtimeproxy.http2.inbound import Inbound
from koordlet.runtimeproxy.http2.limits import TINY_DATA_BYTES, Budget
from koordlet.runtimeproxy.http2.paths import PathReader
from koordlet.runtimeproxy.http2.pings import Pings
from koordlet.runtimeproxy.streams import close_soon
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, ProtocolError


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
        self._paths = PathReader()
        self._inbound = Inbound()
        self._budget = Budget(asyncio.get_running_loop().time())
        self._last_stream = 0
        self._out: list[bytes] = []
        self._closed = False

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._budget.refill(asyncio.get_running_loop().time())
        try:
            for frame in self._reader.feed(data):
                self._answer(frame)
            self._paths.catch_up()
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
        credit = self._inbound.credit(with_others=bool(self._out))
        if credit:
            self._out.append(credit)
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _answer(self, frame: Frame) -> None:
        size = len(frame.raw) - frames.HEAD_BYTES
        if frame.kind == frames.HEADERS:
            self._refuse(frame)
        elif frame.kind == frames.DATA:
            if size < TINY_DATA_BYTES and not frame.flags & frames.END_STREAM:
                self._budget.spend()
            self._inbound.spend(size)
            self._inbound.owed += size
        elif frame.kind == frames.CLIENT_PREFACE:
            self._out.append(frames.make(frames.SETTINGS, 0, 0))
        else:
            self._budget.spend()
            self._reply(frame)

    def _reply(self, frame: Frame) -> None:
        if frame.flags & frames.ACK:
            return
        if frame.kind == frames.SETTINGS:
            self._out.append(frames.make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING:
            pings = Pings()
            pings.take(frame)
            self._out.append(pings.all() or b"")

    def _refuse(self, frame: Frame) -> None:
        path = self._paths.read(frame)
        if frame.stream <= self._last_stream:
            self._budget.spend()
            return
        self._last_stream = frame.stream
        self._meter.called(path, held=False)
        self._meter.ended(path, GRPC_UNAVAILABLE)
        self._budget.responded()
        self._out.append(trailers(frame.stream, GRPC_UNAVAILABLE, self._why(), alone=True))
