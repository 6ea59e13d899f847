"""ttrpc, client and server, unary calls (docs/reference/wire.md 1). Imports protobuf.

Streaming, which NRI does not use, is answered with Unimplemented.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from google.protobuf.message import DecodeError

from koordlet.nri import frame
from koordlet.nri.errors import ClosedError, Code, StatusError
from koordlet.nri.frame import Frame
from koordlet.nri.mux import Send
from koordlet.wire.pb import ttrpc_pb2 as pb

MAX_IN_FLIGHT = 64
"""Calls that one server handles at a time; while there are as many, it reads no further."""
_NANO = 1_000_000_000

Handler = Callable[[bytes], Awaitable[bytes]]
Services = Mapping[str, Mapping[str, Handler]]
"""Full name of the service -> method -> handler. A handler raises StatusError for a status of its
choice; any other error is Unknown, one of protobuf's decoder InvalidArgument."""


class Client:
    """``send`` takes one whole message; ``receive`` gets what comes back, in slices of any size."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._decoder = frame.Decoder()
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._closed = ""

    async def call(
        self, service: str, method: str, payload: bytes, timeout_s: float | None = None
    ) -> bytes:
        """The result, serialised. Raises StatusError, also for a deadline that passed, and
        ClosedError."""
        if self._closed:
            raise ClosedError(self._closed)
        nanos = round(timeout_s * _NANO) if timeout_s is not None else 0
        request = pb.Request(service=service, method=method, payload=payload, timeout_nano=nanos)
        envelope = request.SerializeToString()
        if len(envelope) > frame.MAX_PAYLOAD_BYTES:
            raise _too_large(f"request {method}", len(envelope), frame.MAX_PAYLOAD_BYTES)
        stream = self._next_stream
        self._next_stream += 2
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[stream] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(frame.encode(stream, frame.REQUEST, envelope))
                return await answer
        except TimeoutError:
            text = f"{method} was not answered within {timeout_s:g} s"
            raise StatusError(Code.DEADLINE_EXCEEDED, text) from None
        finally:
            # An answer that comes later finds nobody and is dropped.
            del self._pending[stream]

    async def receive(self, data: memoryview) -> None:
        for each in self._decoder.feed(data):
            answer = self._pending.get(each.stream)
            if each.kind != frame.RESPONSE or answer is None or answer.done():
                continue
            try:
                answer.set_result(_result(each))
            except StatusError as error:
                answer.set_exception(error)

    def close(self, why: str) -> None:
        """Pending calls and all later ones raise ClosedError."""
        self._closed = self._closed or why
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ClosedError(why))


class Server:
    """Handlers run as tasks, started in the order in which the requests came."""

    def __init__(self, send: Send, services: Services) -> None:
        self._send = send
        self._services = services
        self._decoder = frame.Decoder()
        self._last_stream = 0
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = ""
        """The last request that was too long."""

    async def receive(self, data: memoryview) -> None:
        """Raises ClosedError when an answer cannot be sent."""
        for each in self._decoder.feed(data):
            if each.kind != frame.REQUEST:
                continue  # data of streams that were answered Unimplemented; unknown types
            try:
                payload = self._check(each)
            except StatusError as error:
                await self._answer(each.stream, _failure(error))
                continue
            await self._slots.acquire()
            task = asyncio.create_task(self._serve(each.stream, payload))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancels what runs and waits for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check(self, each: Frame) -> bytes:
        if each.stream % 2 == 0 or each.stream <= self._last_stream:
            text = f"stream id {each.stream} is not odd, or not above {self._last_stream}"
            raise StatusError(Code.INVALID_ARGUMENT, text)
        self._last_stream = each.stream
        if each.flags:
            raise StatusError(Code.UNIMPLEMENTED, "this server has no streaming methods")
        if each.payload is None:
            error = _too_large("request", each.length, frame.MAX_RECEIVED_BYTES)
            self.refused = error.message
            raise error
        return each.payload

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()

    async def _serve(self, stream: int, payload: bytes) -> None:
        try:
            response = pb.Response(payload=await self._handle(payload)).SerializeToString()
            if len(response) > frame.MAX_PAYLOAD_BYTES:
                raise _too_large("response", len(response), frame.MAX_PAYLOAD_BYTES)
        except StatusError as error:
            response = _failure(error)
        with contextlib.suppress(ClosedError):  # whoever reads the connection notices and ends it
            await self._answer(stream, response)

    async def _handle(self, payload: bytes) -> bytes:
        try:
            request = pb.Request.FromString(payload)
        except DecodeError as error:
            text = f"the request is no ttrpc.Request: {error}"
            raise StatusError(Code.INVALID_ARGUMENT, text) from None
        methods = self._services.get(request.service)
        if methods is None:
            raise StatusError(Code.UNIMPLEMENTED, f"service {request.service[:200]!r} is unknown")
        name = f"{request.service}/{request.method[:200]}"
        handler = methods.get(request.method)
        if handler is None:
            raise StatusError(Code.UNIMPLEMENTED, f"method {name} is unknown")
        if request.timeout_nano < 0:
            raise StatusError(Code.DEADLINE_EXCEEDED, f"{name} came with a deadline in the past")
        try:
            async with asyncio.timeout(request.timeout_nano / _NANO or None):
                return await handler(request.payload)
        except StatusError:
            raise
        except TimeoutError:
            raise StatusError(Code.DEADLINE_EXCEEDED, f"{name} took too long") from None
        except DecodeError as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"{name}: {error}") from None
        except Exception as error:  # the isolation boundary: one call, whatever it raised
            raise StatusError(Code.UNKNOWN, f"{name}: {type(error).__name__}: {error}") from error

    async def _answer(self, stream: int, response: bytes) -> None:
        await self._send(frame.encode(stream, frame.RESPONSE, response))


def _result(answer: Frame) -> bytes:
    if answer.payload is None:
        raise _too_large("response", answer.length, frame.MAX_RECEIVED_BYTES)
    try:
        response = pb.Response.FromString(answer.payload)
    except DecodeError as error:
        text = f"the answer is no ttrpc.Response: {error}"
        raise StatusError(Code.INTERNAL, text) from None
    if response.status.code != Code.OK:
        raise StatusError(response.status.code, response.status.message)
    payload: bytes = response.payload
    return payload


def _failure(error: StatusError) -> bytes:
    status = pb.Status(code=error.code, message=error.message[:4096])
    response: bytes = pb.Response(status=status).SerializeToString()
    return response


def _too_large(what: str, length: int, most: int) -> StatusError:
    text = f"{what}: {length} bytes, the most is {most}"
    return StatusError(Code.RESOURCE_EXHAUSTED, text)
