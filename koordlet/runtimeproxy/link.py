"""One client connection and its backend connection: frames pass as they are, both ways.

Stream numbers, header blocks, settings, pings and resets are the peers' own, so what this file
does not know works through it. Only the request DATA of intercepted methods stops here, until the
hooks have spoken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import structlog

from koordlet.runtimeproxy import frames, grpc_message
from koordlet.runtimeproxy.contract import Interceptor, Meter, Refusal
from koordlet.runtimeproxy.frames import Frame, FrameReader, ProtocolError
from koordlet.runtimeproxy.headers import (
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNAVAILABLE,
    HeaderReader,
    status_of,
    trailers,
)
from koordlet.runtimeproxy.outbound import Outbound
from koordlet.runtimeproxy.streams import MAX_RESPONSE_BYTES, Held, Side, Stream

_MAX_BODY_BYTES = grpc_message.MAX_MESSAGE_BYTES + grpc_message.PREFIX_BYTES
_REFUSED_KEPT = 256
_CREDIT_BYTES = 16 << 10
"""Less than this goes to the client with the next frame, instead of waking it up by itself."""


class Link:
    """``client`` and ``backend`` are the protocols of the two connections. ``on_lost_backend`` is
    told when the backend went first, ``on_end`` whoever went first."""

    def __init__(
        self,
        interceptor: Interceptor,
        meter: Meter,
        on_lost_backend: Callable[[], None],
        on_end: Callable[[Link], None],
    ) -> None:
        self.client = Side(self._client_data, self._end)
        self.backend = Side(self._backend_data, self._backend_lost)
        self.client.other, self.backend.other = self.backend, self.client
        self._interceptor = interceptor
        self._meter = meter
        self._on_lost_backend = on_lost_backend
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._log = structlog.get_logger()
        self._from_client = FrameReader(from_client=True)
        self._from_backend = FrameReader(from_client=False)
        self._request_headers = HeaderReader()
        self._response_headers = HeaderReader()
        self._outbound = Outbound()
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._credit = 0  # of the connection's window, owed to the client
        # Ended here while the backend may still be speaking.
        self._refused: deque[int] = deque(maxlen=_REFUSED_KEPT)
        self._fresh: list[str] = []  # paths of calls that begin in this turn and pass
        self._closed = self._draining = False
        self._client_handlers: Mapping[int, Callable[[Frame], None]] = {
            frames.HEADERS: self._request,
            frames.DATA: self._request_data,
            frames.RST_STREAM: self._client_reset,
            frames.SETTINGS: self._client_settings,
        }
        self._backend_handlers: Mapping[int, Callable[[Frame], None]] = {
            frames.HEADERS: self._response,
            frames.PUSH_PROMISE: self._promise,
            frames.DATA: self._response_data,
            frames.RST_STREAM: self._backend_reset,
            frames.SETTINGS: self._backend_settings,
            frames.WINDOW_UPDATE: self._backend_window,
        }

    # What comes from the client

    def _client_data(self, data: bytes) -> None:
        if self._closed:
            return
        begun = self._loop.time()
        try:
            for frame in self._from_client.feed(data):
                handler = self._client_handlers.get(frame.kind)
                if handler is None:
                    self.backend.out.append(frame.raw)
                else:
                    handler(frame)
        except ProtocolError as error:
            self._break_off(f"client: {error}", error.code)
            return
        self._flush()
        if self._fresh:
            passed = self._loop.time() - begun
            for path in self._fresh:
                self._meter.added(path, held=False, seconds=passed)
            self._fresh.clear()

    def _request(self, frame: Frame) -> None:
        found = self._request_headers.read(frame)
        number = frame.stream
        stream = self._streams.get(number)
        if stream is not None:
            if stream.held is not None or self._outbound.waits(number):
                # They would have to wait for the DATA before them, and header blocks cannot wait:
                # the next one may refer to what this one put in the table. gRPC has none.
                text = "trailers of a request whose DATA waits"
                raise ProtocolError(frames.PROTOCOL_ERROR, text)
        elif number > self._last_stream:
            self._last_stream = number
            path = found.get(b":path", b"").decode("utf-8", "replace")
            held = not frame.flags & frames.END_STREAM and self._interceptor.wants(path)
            self._streams[number] = Stream(number, path, Held() if held else None)
            self._meter.called(path, held=held)
            if held:
                self._outbound.hold(number)
            else:
                self._fresh.append(path)
        self.backend.out.append(frame.raw)

    def _request_data(self, frame: Frame) -> None:
        size = len(frame.raw) - frames.HEAD_BYTES
        stream = self._streams.get(frame.stream)
        end = bool(frame.flags & frames.END_STREAM)
        if stream is not None and stream.held is not None:
            payload = frames.data_of(frame)
            self._give_back(frame.stream, size, stream_too=not end)
            if not stream.held.sent:
                self._collect(stream, stream.held, payload, end)
        elif frame.stream in self._refused:
            self._give_back(frame.stream, size, stream_too=not end)
        elif self._outbound.passes(frame.stream, size):
            self.backend.out.append(frame.raw)
        else:
            payload = frames.data_of(frame)
            self._give_back(frame.stream, size - len(payload), stream_too=not end)
            self._outbound.put(frame.stream, payload, end=end)

    def _give_back(self, stream: int, size: int, *, stream_too: bool) -> None:
        """The client may send as much again: what it sent does not reach the backend as it is."""
        self._credit += size
        if size and stream_too:
            self.client.out.append(frames.window_update(stream, size))

    def _client_reset(self, frame: Frame) -> None:
        self._drop(frame.stream, None)
        self.backend.out.append(frame.raw)

    def _client_settings(self, frame: Frame) -> None:
        if not frame.flags & frames.ACK:
            for name, value in frames.settings_of(frame):
                if name == frames.SETTING_HEADER_TABLE_SIZE:
                    self._response_headers.allow_table(value)
        self.backend.out.append(frame.raw)

    # Held streams

    def _collect(self, stream: Stream, held: Held, payload: bytes | memoryview, end: bool) -> None:
        held.body += payload
        if len(held.body) > _MAX_BODY_BYTES:
            limit = grpc_message.MAX_MESSAGE_BYTES
            text = f"koordlet runtime-proxy: request above the {limit} bytes of CRI"
            self._refuse(stream, Refusal(GRPC_RESOURCE_EXHAUSTED, text))
            return
        if not end:
            return
        held.complete_at = self._loop.time()
        message = grpc_message.unwrap(held.body)
        if message is not None:
            held.call = self._interceptor.begin(stream.path, message)
        question = None if held.call is None else held.call.ask()
        if question is None:
            self._send(stream, held, None)
        else:
            held.task = self._loop.create_task(self._decide(stream, held, question))

    async def _decide(
        self, stream: Stream, held: Held, question: Awaitable[bytes | Refusal | None]
    ) -> None:
        try:
            answer = await question
        except Exception:
            # A fault of ours in understanding a call must not become the pod's: let it pass.
            self._log.exception("hook_handling_failed", method=stream.path)
            answer = None
        held.task = None
        if self._streams.get(stream.id) is not stream:
            return
        if isinstance(answer, Refusal):
            self._refuse(stream, answer)
        else:
            self._send(stream, held, answer)
        self._flush()

    def _send(self, stream: Stream, held: Held, message: bytes | None) -> None:
        body = bytes(held.body) if message is None else grpc_message.wrap(message)
        held.body.clear()
        held.sent = True
        self._outbound.put(stream.id, body, end=True)
        seconds = self._loop.time() - held.complete_at
        self._meter.added(stream.path, held=True, seconds=seconds)

    def _refuse(self, stream: Stream, refusal: Refusal) -> None:
        self.client.out.append(
            trailers(stream.id, refusal.status, refusal.text, alone=not stream.answered)
        )
        self.backend.out.append(frames.rst_stream(stream.id, frames.CANCEL))
        self._refused.append(stream.id)
        self._drop(stream.id, refusal.status)

    def _drop(self, number: int, status: int | None) -> None:
        """The stream has ended, for whatever reason."""
        waited = self._outbound.forget(number)
        self._give_back(number, waited, stream_too=False)
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        self._meter.ended(stream.path, status)
        held = stream.held
        if held is None:
            return
        if held.task is not None:
            held.task.cancel()
        if held.call is not None and held.sent:
            held.call.ended(status, grpc_message.unwrap(held.response))

    # What comes from the backend

    def _backend_data(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            for frame in self._from_backend.feed(data):
                handler = self._backend_handlers.get(frame.kind)
                if handler is None:
                    self.client.out.append(frame.raw)
                else:
                    handler(frame)
        except ProtocolError as error:
            self._break_off(f"backend: {error}", error.code)
            return
        self._flush()

    def _response(self, frame: Frame) -> None:
        """Also of a stream that was refused here: the client's table must follow, and it ignores
        headers of streams it has closed."""
        found = self._response_headers.read(frame)
        self.client.out.append(frame.raw)
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        stream.answered = True
        if frame.flags & frames.END_STREAM:
            self._response_ended(stream, status_of(found))

    def _response_ended(self, stream: Stream, status: int | None) -> None:
        unsent = (stream.held is not None and not stream.held.sent) or self._outbound.waits(
            stream.id
        )
        if unsent:
            # The client may think it has sent everything: nobody else would end the request.
            self.backend.out.append(frames.rst_stream(stream.id, frames.CANCEL))
            self._refused.append(stream.id)
        self._drop(stream.id, status)

    def _promise(self, frame: Frame) -> None:
        self._response_headers.read(frame)
        self.client.out.append(frame.raw)

    def _response_data(self, frame: Frame) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None and frame.stream in self._refused:
            size = len(frame.raw) - frames.HEAD_BYTES
            if size:
                self.backend.out.append(frames.window_update(0, size))
            return
        self.client.out.append(frame.raw)
        if stream is None:
            return
        if stream.held is not None and len(stream.held.response) <= MAX_RESPONSE_BYTES:
            stream.held.response += frames.data_of(frame)
        if frame.flags & frames.END_STREAM:
            self._response_ended(stream, None)

    def _backend_reset(self, frame: Frame) -> None:
        self._drop(frame.stream, None)
        self.client.out.append(frame.raw)

    def _backend_settings(self, frame: Frame) -> None:
        if not frame.flags & frames.ACK:
            for name, value in frames.settings_of(frame):
                if name == frames.SETTING_HEADER_TABLE_SIZE:
                    self._request_headers.allow_table(value)
                elif name == frames.SETTING_INITIAL_WINDOW_SIZE:
                    self._outbound.announce(value)
        self.client.out.append(frame.raw)

    def _backend_window(self, frame: Frame) -> None:
        increment = frames.increment_of(frame)
        if frame.stream:
            if not self._outbound.paid_stream(frame.stream, increment):
                self.client.out.append(frame.raw)
            return
        left = self._outbound.paid(increment)
        if left == increment:
            self.client.out.append(frame.raw)
        elif left:
            self.client.out.append(frames.window_update(0, left))

    # Ends

    def _flush(self) -> None:
        self.backend.out += self._outbound.flush()
        if self._credit and (self.client.out or self._credit >= _CREDIT_BYTES):
            self.client.out.append(frames.window_update(0, self._credit))
            self._credit = 0
        self.backend.flush()
        self.client.flush()

    def drain(self) -> None:
        """The client shall take its next calls elsewhere; those that run may end."""
        if not self._closed and not self._draining:
            self._draining = True
            self.client.out.append(frames.goaway(self._last_stream, frames.NO_ERROR))
            self._flush()

    def close(self, why: str) -> None:
        """Calls that still run end with Unavailable."""
        if self._closed:
            return
        for stream in self._streams.values():
            self.client.out.append(
                trailers(stream.id, GRPC_UNAVAILABLE, why, alone=not stream.answered)
            )
        self.client.out.append(frames.goaway(self._last_stream, frames.NO_ERROR))
        self._end(GRPC_UNAVAILABLE)

    @property
    def busy(self) -> bool:
        return bool(self._streams)

    def _backend_lost(self) -> None:
        if not self._closed:
            self._on_lost_backend()
            self.close("koordlet runtime-proxy: the container runtime has closed the connection")

    def _break_off(self, text: str, code: int) -> None:
        self._meter.broken(text)
        self.client.out.append(frames.goaway(self._last_stream, code, text))
        self.backend.out.append(frames.goaway(0, code, text))
        self._end()

    def _end(self, status: int | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        for number in tuple(self._streams):
            self._drop(number, status)
        for side in (self.client, self.backend):
            side.flush()
            side.close()
        self._on_end(self)
