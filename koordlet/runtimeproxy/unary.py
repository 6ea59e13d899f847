"""Unary gRPC calls to a unix socket, on one connection, with the frames the proxy has anyway.

grpcio takes most of a millisecond for a call, because it hands each to threads of its own, and
10 MiB of memory. Hooks are asked while a pod waits.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from koordlet import __version__
from koordlet.runtimeproxy import grpc_message
from koordlet.runtimeproxy.http2.headers import (
    GRPC_CANCELLED,
    GRPC_DEADLINE_EXCEEDED,
    GRPC_INTERNAL,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNAVAILABLE,
    GRPC_UNKNOWN,
    STATUS_NAMES,
    HeaderReader,
    block_of,
    status_of,
    text_of,
)
from koordlet.runtimeproxy.http2.outbound import Outbound
from koordlet.runtimeproxy.http2.pings import Pings
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, ProtocolError, make

_CREDIT_BYTES: Final = 1 << 20
_PING_S: Final = 1.0
_MAX_BLOCKS: Final = 64
_STATUS_OF_RESET: Final = {  # gRPC over HTTP2, "HTTP2 Transport Mapping", errors
    frames.REFUSED_STREAM: GRPC_UNAVAILABLE,
    frames.CANCEL: GRPC_CANCELLED,
    frames.ENHANCE_YOUR_CALM: GRPC_RESOURCE_EXHAUSTED,
}


class CallError(Exception):
    """A call ended with a status other than OK. ``processed``: False where the server has not
    begun it and never will."""

    def __init__(self, status: int, text: str, *, processed: bool = True) -> None:
        super().__init__(f"{STATUS_NAMES.get(status, status)}: {text}")
        self.status = status
        self.processed = processed


Ended: TypeAlias = Callable[[bytes | CallError], None]
"""Called once with the response message or the error, unless the call was cancelled."""
Cancel: TypeAlias = Callable[[], None]


@dataclass(slots=True)
class _Call:
    headers: bytes
    body: bytes
    ended: Ended | None
    """None when nobody waits any more."""
    timer: asyncio.TimerHandle | None = None
    stream: int = 0
    response: bytearray = field(default_factory=bytearray)

    def end(self, found: bytes | CallError) -> None:
        ended, self.ended = self.ended, None
        if self.timer is not None:
            self.timer.cancel()
        if ended is not None:
            ended(found)


class Unary:
    """``max_answer_bytes``: of one response."""

    def __init__(self, path: str, max_answer_bytes: int) -> None:
        self._path = path
        self._max_answer_bytes = max_answer_bytes
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._headers: dict[tuple[str, float], bytes] = {}
        self._closed = False

    @property
    def usable(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection.usable

    def start(self, method: str, message: bytes, timeout_s: float, ended: Ended) -> Cancel:
        """Needs a connection."""
        assert self._connection is not None
        body = grpc_message.wrap(message)
        return self._connection.start(self._block(method, timeout_s), body, timeout_s, ended)

    async def call(self, method: str, message: bytes, timeout_s: float) -> bytes:
        """The response message. Raises CallError."""
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self._attempt(method, message, timeout_s)
                except CallError as error:
                    if error.processed:
                        raise
                return await self._attempt(method, message, timeout_s)
        except TimeoutError:
            raise expired(timeout_s) from None

    def close(self) -> None:
        """Calls that run end with Unavailable."""
        self._closed = True
        if self._connection is not None:
            self._connection.close("closed")

    async def _attempt(self, method: str, message: bytes, timeout_s: float) -> bytes:
        if not self.usable:
            await self.connect()
        return await in_future(lambda ended: self.start(method, message, timeout_s, ended))

    async def connect(self) -> None:
        """One connection for all who wait for it. Raises CallError."""
        task = self._connecting
        if task is None or task.done():
            task = self._connecting = asyncio.get_running_loop().create_task(self._connect())
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(task)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_unix_connection(
                lambda: _Connection(self._max_answer_bytes), self._path
            )
        except OSError as error:
            text = os.strerror(error.errno) if error.errno else str(error)
            raise CallError(GRPC_UNAVAILABLE, f"{self._path}: {text}") from error
        if self._closed:
            made.close("closed")
        self._connection = made

    def _block(self, method: str, timeout_s: float) -> bytes:
        found = self._headers.get((method, timeout_s))
        if found is None:
            if len(self._headers) >= _MAX_BLOCKS:
                self._headers.clear()
            timeout_ms = max(round(timeout_s * 1000), 1)
            found = self._headers[method, timeout_s] = block_of(
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", method.encode()),
                (b":authority", b"localhost"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", f"koordlet/{__version__}".encode()),
                (b"te", b"trailers"),
                (b"grpc-timeout", b"%dm" % timeout_ms),
            )
        return found


def expired(timeout_s: float) -> CallError:
    return CallError(GRPC_DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s")


async def in_future(start: Callable[[Ended], Cancel]) -> bytes:
    """A call for somebody who can wait. Raises CallError."""
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def ended(found: bytes | CallError) -> None:
        if done.done():
            return
        if isinstance(found, CallError):
            done.set_exception(found)
        else:
            done.set_result(found)

    cancel = start(ended)
    try:
        return await done
    finally:
        if done.cancelled():
            cancel()


class _Connection(asyncio.Protocol):
    def __init__(self, max_answer_bytes: int) -> None:
        self.usable = True
        self._max_body_bytes = max_answer_bytes + grpc_message.PREFIX_BYTES
        self._reader = FrameReader(from_client=False)
        self._headers = HeaderReader()
        self._outbound = Outbound()
        self._calls: dict[int, _Call] = {}
        self._queue: deque[_Call] = deque()
        self._max_calls = frames.MAX_STREAM
        self._next_stream = 1
        self._owed = 0
        self._out: list[bytes] = []
        self._pings = Pings()
        self._later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    def start(self, headers: bytes, body: bytes, timeout_s: float, ended: Ended) -> Cancel:
        call = _Call(headers, body, ended)
        self._queue.append(call)
        self._flush()
        if call.ended is not None:
            expire = self._expire
            call.timer = self._loop.call_later(timeout_s, expire, call, timeout_s)
        return lambda: self._cancel(call)

    def close(self, why: str) -> None:
        self._lost(why)
        self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        window = self._max_body_bytes
        settings = {
            frames.SETTING_ENABLE_PUSH: 0,
            frames.SETTING_INITIAL_WINDOW_SIZE: max(window, frames.DEFAULT_WINDOW_BYTES),
        }
        whole = frames.window_update(0, window + _CREDIT_BYTES)
        self._transport.write(frames.PREFACE + frames.settings(settings) + whole)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except ProtocolError as error:
            self.close(f"the server broke HTTP/2: {error}")
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost("the server has closed the connection")

    # Frames

    def _take(self, frame: Frame) -> None:
        number = frame.stream
        if frame.kind == frames.HEADERS:
            self._take_headers(frame)
        elif frame.kind == frames.DATA:
            self._take_data(frame)
        elif frame.kind == frames.WINDOW_UPDATE:
            increment = frames.increment_of(frame)
            if number:
                self._outbound.paid_stream(number, increment)
            else:
                self._outbound.paid(increment)
        elif frame.kind == frames.RST_STREAM:
            code = int.from_bytes(frame.raw[frames.HEAD_BYTES :])
            status = _STATUS_OF_RESET.get(code, GRPC_INTERNAL)
            processed = code != frames.REFUSED_STREAM
            self._fail(number, status, f"reset with code {code}", processed=processed)
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            self._take_settings(dict(frames.settings_of(frame)))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK:
            self._take_ping(frame)
        elif frame.kind == frames.GOAWAY:
            self.usable = False
            self._answer_pings()
            last = frames.last_stream_of(frame)
            for above in [each for each in self._calls if each > last]:
                self._fail(above, GRPC_UNAVAILABLE, "the server leaves", processed=False)

    def _take_ping(self, frame: Frame) -> None:
        if self._later is None:
            self._later = self._loop.call_later(_PING_S, self._answer_pings)
        self._pings.take(frame)

    def _answer_pings(self) -> None:
        self._later = None
        answers = self._pings.all()
        if answers is not None and not self._transport.is_closing():
            self._transport.write(answers)

    def _take_settings(self, settings: dict[int, int]) -> None:
        initial = settings.get(frames.SETTING_INITIAL_WINDOW_SIZE)
        if initial is not None:
            self._outbound.announce(initial)
        self._max_calls = settings.get(frames.SETTING_MAX_CONCURRENT_STREAMS, self._max_calls)
        self._out.append(make(frames.SETTINGS, frames.ACK, 0))

    def _take_headers(self, frame: Frame) -> None:
        found = self._headers.read(frame)
        call = self._calls.get(frame.stream)
        if call is None or not frame.flags & frames.END_STREAM:
            return
        status = status_of(found)
        if status == 0:
            message = grpc_message.unwrap(call.response)
            if message is not None:
                call.end(message)
                self._end(frame.stream)
                return
            self._fail(frame.stream, GRPC_INTERNAL, "the answer is not one plain message")
        elif status is None:
            http = found.get(b":status", b"nothing").decode("ascii", "replace")
            self._fail(frame.stream, GRPC_UNKNOWN, f"no status of gRPC, and {http} of HTTP")
        else:
            self._fail(frame.stream, status, text_of(found))

    def _take_data(self, frame: Frame) -> None:
        self._owed += len(frame.raw) - frames.HEAD_BYTES
        call = self._calls.get(frame.stream)
        if call is None:
            return
        call.response += frames.data_of(frame)
        # By its first bytes: the window ends where the limit does, and more would never come.
        if grpc_message.size_of(call.response) > self._max_body_bytes:
            self._reset(frame.stream)
            text = f"the answer is above {self._max_body_bytes} bytes"
            self._fail(frame.stream, GRPC_RESOURCE_EXHAUSTED, text)
        elif frame.flags & frames.END_STREAM:
            self._fail(frame.stream, GRPC_INTERNAL, "an answer without a status")

    # Calls

    def _fail(self, stream: int, status: int, text: str, *, processed: bool = True) -> None:
        call = self._calls.get(stream)
        if call is not None:
            self._end(stream)
            call.end(CallError(status, text, processed=processed))

    def _end(self, stream: int) -> None:
        if self._calls.pop(stream, None) is None:
            return
        if self._outbound.waits(stream):
            self._reset(stream)
        self._outbound.forget(stream)

    def _reset(self, stream: int) -> None:
        self._out.append(frames.rst_stream(stream, frames.CANCEL))

    def _expire(self, call: _Call, timeout_s: float) -> None:
        ended = call.ended
        self._cancel(call)
        if ended is not None:
            ended(expired(timeout_s))

    def _cancel(self, call: _Call) -> None:
        """Nobody waits for it any more."""
        call.ended = None
        if call.timer is not None:
            call.timer.cancel()
        if self._calls.get(call.stream) is call:
            self._reset(call.stream)
            self._end(call.stream)
            self._flush()

    def _lost(self, why: str) -> None:
        self.usable = False
        if self._later is not None:
            self._later.cancel()
        for stream in tuple(self._calls):
            self._fail(stream, GRPC_UNAVAILABLE, why)
        while self._queue:
            self._queue.popleft().end(CallError(GRPC_UNAVAILABLE, why, processed=False))

    def _flush(self) -> None:
        if self._transport.is_closing():
            self._lost("the connection is closed")
            return
        while self._queue and len(self._calls) < self._max_calls:
            call = self._queue.popleft()
            if call.ended is not None:
                self._begin(call)
        if self._outbound.changed:
            self._out += self._outbound.flush()
        if self._owed >= _CREDIT_BYTES:
            self._out.append(frames.window_update(0, self._owed))
            self._owed = 0
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _begin(self, call: _Call) -> None:
        stream = call.stream = self._next_stream
        self._next_stream += 2
        self._calls[stream] = call
        self._out.append(make(frames.HEADERS, frames.END_HEADERS, stream, call.headers))
        self._outbound.hold(stream)
        whole = self._outbound.whole(stream, call.body)
        if whole is None:
            self._outbound.put(stream, call.body, end=True)
        else:
            self._out.append(whole)
        call.body = b""
