"""One client connection and its backend connection: frames pass as they are, both ways.

Stream numbers, header blocks and resets are the peers' own, so what this file does not know works
through it. Only the request DATA of intercepted methods stops here, until the hooks have spoken.
What a client may do is bounded (``limits``): it is not trusted to keep to HTTP/2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from koordlet.runtimeproxy.calls import Calls
from koordlet.runtimeproxy.contract import Interceptor, Meter, Refusal
from koordlet.runtimeproxy.flow import Flow
from koordlet.runtimeproxy.held import HeldCalls
from koordlet.runtimeproxy.http2.farewell import Farewell
from koordlet.runtimeproxy.http2.headers import GRPC_UNAVAILABLE, HeaderReader, status_of, trailers
from koordlet.runtimeproxy.http2.limits import TINY_DATA_BYTES, Account, Budget, Ledger
from koordlet.runtimeproxy.http2.paths import PathReader
from koordlet.runtimeproxy.http2.pings import Pings
from koordlet.runtimeproxy.settings import Settings
from koordlet.runtimeproxy.streams import MAX_RESPONSE_BYTES, Side, Stream
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, ProtocolError


class Link:
    """``client`` and ``backend`` are the protocols of the two connections. ``on_lost_backend`` is
    called when the backend went first, ``on_end`` whoever went first."""

    def __init__(
        self,
        interceptor: Interceptor,
        meter: Meter,
        ledger: Ledger,
        on_lost_backend: Callable[[], None],
        on_end: Callable[[Link], None],
    ) -> None:
        self.client = Side(self._client_data, self._end, self._choose_whom_to_read)
        self.backend = Side(self._backend_data, self._backend_lost, self._choose_whom_to_read)
        self._interceptor = interceptor
        self._meter = meter
        self._on_lost_backend = on_lost_backend
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._from_client = FrameReader(from_client=True)
        self._from_backend = FrameReader(from_client=False)
        self._paths = PathReader()
        self._response_headers = HeaderReader()
        account = Account(ledger)
        self._flow = Flow(account)
        self._settings = Settings(self._paths.headers, self._response_headers, self._flow)
        self._budget = Budget(self._loop.time())
        self._farewell = Farewell()
        self._client_pings = Pings()
        self._backend_pings = Pings()
        self._held = HeldCalls(
            *(interceptor, meter, account, self._flow.outbound),
            *(self._refuse, self.backend.send, self._flush),
        )
        self._calls = Calls(meter, account, self._flow, self._held)
        self._fresh: list[str] = []  # paths of calls that begin in this turn and pass
        self._closed = False
        self._client_handlers: Mapping[int, Callable[[Frame], None]] = {
            frames.CLIENT_PREFACE: lambda frame: self.backend.send(frame.raw),
            frames.HEADERS: self._request,
            frames.DATA: self._request_data,
            frames.RST_STREAM: self._client_reset,
            frames.SETTINGS: self._client_settings,
            frames.PING: self._client_ping,
            frames.WINDOW_UPDATE: self._client_window,
        }
        self._backend_handlers: Mapping[int, Callable[[Frame], None]] = {
            frames.HEADERS: self._response,
            frames.PUSH_PROMISE: self._response,
            frames.DATA: self._response_data,
            frames.RST_STREAM: self._backend_reset,
            frames.SETTINGS: lambda frame: self.client.send(self._settings.of_backend(frame)),
            frames.WINDOW_UPDATE: self._backend_window,
            frames.GOAWAY: self._backend_goaway,
            frames.PING: self._backend_pings.take,
        }

    # What comes from the client

    def _client_data(self, data: bytes) -> None:
        if self._closed:
            return
        begun = self._loop.time()
        self._budget.refill(begun)
        try:
            for frame in self._from_client.feed(data):
                if frame.stream > self._farewell.ceiling:
                    self._drown(frame)
                    continue
                handler = self._client_handlers.get(frame.kind)
                if handler is None:
                    self._budget.spend()
                    self.backend.send(frame.raw)
                else:
                    handler(frame)
            self._flush()
            self._paths.catch_up()
        except ProtocolError as error:
            self._break_off(f"client: {error}", error.code)
            return
        if self._fresh:
            passed = self._loop.time() - begun
            for path in self._fresh:
                self._meter.added(path, held=False, seconds=passed)
            self._fresh.clear()

    def _drown(self, frame: Frame) -> None:
        """Of a stream that the client runs again on another connection."""
        if frame.kind == frames.DATA:
            size = len(frame.raw) - frames.HEAD_BYTES
            self._flow.arrived(None, size)
            self._flow.inbound.owed += size
        elif frame.kind != frames.HEADERS:
            self._budget.spend()

    def _request(self, frame: Frame) -> None:
        path = self._paths.read(frame)
        number = frame.stream
        stream = self._calls.running.get(number)
        if stream is None and number > self._calls.last_stream:
            self._open(frame, path)
            return
        if stream is None:
            self._budget.spend()  # it has ended
        elif stream.held is not None or self._flow.outbound.waits(number):
            # They would have to wait for the DATA before them, and header blocks cannot wait: the
            # next one may refer to what this one put in the table. gRPC has none.
            text = "trailers of a request whose DATA waits"
            raise ProtocolError(frames.PROTOCOL_ERROR, text)
        else:
            stream.half_closed |= bool(frame.flags & frames.END_STREAM)
        self.backend.send(frame.raw)

    def _open(self, frame: Frame, path: str) -> None:
        number = self._calls.last_stream = frame.stream
        if not number % 2:
            raise ProtocolError(frames.PROTOCOL_ERROR, "a stream with an even number")
        if not path.startswith("/"):
            # Some servers take it for the same method (RFC 9113 section 8.3.1 does not).
            raise ProtocolError(frames.PROTOCOL_ERROR, "a request whose path does not begin with /")
        held = self._interceptor.wants(path)
        self._meter.called(path, held=held)
        if held:
            self.backend.send_later(frame.raw)  # its DATA may take a while
        else:
            self.backend.send(frame.raw)
        stream = Stream(number, path, half_closed=bool(frame.flags & frames.END_STREAM))
        if not self._calls.open(stream):
            # The runtime had to see its headers, because later ones may refer to them.
            self._abandon(stream, frames.REFUSED_STREAM)
            self._meter.ended(path, None)
            return
        if held:
            self._held.begin(stream)
            self._flow.hold(stream)
        else:
            self._fresh.append(path)
        if held and stream.half_closed:
            self._held.collect(stream, b"", end=True)

    def _request_data(self, frame: Frame) -> None:
        size = len(frame.raw) - frames.HEAD_BYTES
        end = bool(frame.flags & frames.END_STREAM)
        if size < TINY_DATA_BYTES and not end:
            self._budget.spend()
        stream = self._calls.running.get(frame.stream)
        self._flow.arrived(stream, size)
        if stream is None:
            self._data_of_no_stream(frame, size)
            return
        if stream.half_closed:
            self._flow.inbound.owed += size
            self._abandon(stream, frames.STREAM_CLOSED)
            return
        stream.half_closed = end
        if stream.held is not None:
            self._flow.absorbed(stream, size)
            self._held.collect(stream, frames.data_of(frame), end=end)
        else:
            self.backend.send(self._flow.pass_on(frame, stream, size))

    def _data_of_no_stream(self, frame: Frame, size: int) -> None:
        if frame.stream > self._calls.last_stream or not frame.stream:
            raise ProtocolError(frames.PROTOCOL_ERROR, "DATA of a stream that was never opened")
        if frame.stream in self._calls.refused:
            self._flow.inbound.owed += size
        else:
            self.backend.send(self._flow.pass_late(frame, size))

    def _client_reset(self, frame: Frame) -> None:
        self._budget.spend()
        self._calls.drop(frame.stream, None)
        self.backend.send(frame.raw)

    def _client_settings(self, frame: Frame) -> None:
        self._budget.spend()
        self.backend.send(self._settings.of_client(frame))

    def _client_window(self, frame: Frame) -> None:
        self._budget.spend()
        stream = self._calls.running.get(frame.stream)
        if frame.stream:
            can_wait = stream is not None and stream.held is not None and not stream.held.sent
        else:
            can_wait = not self._flow.credited(frames.increment_of(frame))
        (self.backend.send_later if can_wait else self.backend.send)(frame.raw)

    def _client_ping(self, frame: Frame) -> None:
        self._budget.spend()
        if self._farewell.answered(frame):
            self.settle()
        else:
            self._client_pings.take(frame, self._flow.response_bytes)

    # Ends of streams

    def _refuse(self, stream: Stream, refusal: Refusal) -> None:
        alone = not stream.answered
        self.client.send(trailers(stream.id, refusal.status, refusal.text, alone=alone))
        self._cut_off(stream)
        self._calls.drop(stream.id, refusal.status)

    def _abandon(self, stream: Stream, code: int) -> None:
        """The client is told by a reset."""
        self.client.send(frames.rst_stream(stream.id, code))
        self._cut_off(stream)
        self._calls.drop(stream.id, None)

    def _cut_off(self, stream: Stream) -> None:
        """The backend expects a request that does not come."""
        self.backend.send(frames.rst_stream(stream.id, frames.CANCEL))
        self._calls.refused.append(stream.id)

    # What comes from the backend

    def _backend_data(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            for frame in self._from_backend.feed(data):
                handler = self._backend_handlers.get(frame.kind)
                if handler is None:
                    self.client.send(frame.raw)
                else:
                    handler(frame)
            self._flush()
        except ProtocolError as error:
            self._break_off(f"backend: {error}", error.code)

    def _response(self, frame: Frame) -> None:
        """Also of a stream that was refused here: the client's table must follow, and it ignores
        headers of streams it has closed. A PUSH_PROMISE, which gRPC has not, ends nothing."""
        found = self._response_headers.read(frame)
        self._budget.responded()
        self.client.send(frame.raw)
        stream = self._calls.running.get(frame.stream)
        if stream is None:
            return
        stream.answered = True
        if frame.flags & frames.END_STREAM and frame.kind == frames.HEADERS:
            self._response_ended(stream, status_of(found))

    def _response_ended(self, stream: Stream, status: int | None) -> None:
        unsent = stream.held is not None and not stream.held.sent
        if unsent or self._flow.outbound.waits(stream.id):
            # The client may think it has sent everything: nobody else would end the request.
            self._cut_off(stream)
        self._calls.drop_later(stream.id, status)

    def _response_data(self, frame: Frame) -> None:
        stream = self._calls.running.get(frame.stream)
        if stream is None and frame.stream in self._calls.refused:
            size = len(frame.raw) - frames.HEAD_BYTES
            if size:
                self.backend.send(frames.window_update(0, size))
            return
        self._budget.responded()
        self._flow.responded(len(frame.raw) - frames.HEAD_BYTES)
        self.client.send(frame.raw)
        if stream is None:
            return
        if stream.held is not None and len(stream.held.response) <= MAX_RESPONSE_BYTES:
            stream.held.response += frames.data_of(frame)
        if frame.flags & frames.END_STREAM:
            self._response_ended(stream, None)

    def _backend_reset(self, frame: Frame) -> None:
        self._calls.drop(frame.stream, None)
        self.client.send(frame.raw)

    def _backend_window(self, frame: Frame) -> None:
        self.client.send(self._flow.paid(frame, self._calls.running.get(frame.stream)))

    def _backend_goaway(self, frame: Frame) -> None:
        """It takes no stream above a number; the client runs those again elsewhere."""
        self._farewell.runtime_leaves(frames.last_stream_of(frame))
        self._backend_pings.at_once = True
        self._calls.drop_above(self._farewell.ceiling)
        self.client.send(frame.raw)

    # Sending

    def _flush(self) -> None:
        flow, client, backend = self._flow, self.client, self.backend
        if self._backend_pings.waiting:
            backend.send(self._backend_pings.due())
        if flow.outbound.changed:
            backend.send_all(flow.to_backend())
        if self._client_pings.waiting:
            client.send(self._client_pings.due(flow.response_bytes))
        if flow.owes:
            client.send_all(flow.to_client(with_others=client.urgent))
        backend.flush()
        client.flush()
        self._calls.clear_up()

    def _choose_whom_to_read(self) -> None:
        """Whoever does not read gets no more, and may not cause more."""
        self.client.read(not self.client.full and not self.backend.full)
        self.backend.read(not self.client.full)

    # The end

    @property
    def busy(self) -> bool:
        """Whether calls run, or may still come of a client that was asked to leave."""
        return bool(self._calls.running) or (self._farewell.begun and not self._farewell.settled)

    @property
    def idle_since(self) -> float:
        return self._calls.idle_since

    def look_after(self) -> None:
        """For once a second."""
        self._held.refuse_overdue()
        self._flush()
        self.backend.send(self._backend_pings.all())
        self.client.send(self._client_pings.all())
        for side in self.sides():
            side.flush(all_of_it=True)

    def drain(self) -> None:
        """The client shall take its next calls elsewhere; those that run may end."""
        if not self._closed and not self._farewell.begun:
            self.client.send(self._farewell.begin())
            self._flush()

    def settle(self) -> None:
        """No call that has not come yet is taken any more."""
        if not self._closed and not self._farewell.settled:
            self.client.send(self._farewell.settle(self._calls.last_stream))
            self._flush()

    def sides(self) -> tuple[Side, Side]:
        return self.client, self.backend

    def close(self, why: str) -> None:
        """Calls that the runtime has end with Unavailable; those it has not, the client may run
        again at once."""
        if self._closed:
            return
        self.settle()
        for stream in self._calls.running.values():
            if stream.held is not None and not stream.held.sent:
                self.client.send(frames.rst_stream(stream.id, frames.REFUSED_STREAM))
                self.backend.send(frames.rst_stream(stream.id, frames.CANCEL))
            else:
                end = trailers(stream.id, GRPC_UNAVAILABLE, why, alone=not stream.answered)
                self.client.send(end)
        self._end(GRPC_UNAVAILABLE)

    def _backend_lost(self) -> None:
        if not self._closed:
            self._on_lost_backend()
            self.close("koordlet runtime-proxy: the container runtime has closed the connection")

    def _break_off(self, text: str, code: int) -> None:
        self._meter.broken(text)
        self.client.send(self._farewell.settle(self._calls.last_stream, code, text))
        self.backend.send(frames.goaway(0, code, text))
        self._end()

    def _end(self, status: int | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        self._calls.drop_all(status)
        for side in self.sides():
            side.flush(all_of_it=True)
            side.close()
        self._on_end(self)
