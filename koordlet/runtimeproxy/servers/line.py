"""The proxy's end of the line to koordlet's hook server (``wire/hook_line.py``)."""

from __future__ import annotations

import asyncio
import os
from typing import Final, cast

from koordlet.runtimeproxy.http2.headers import GRPC_OK, GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE
from koordlet.runtimeproxy.unary import CallError, Cancel, Ended, expired
from koordlet.wire import hook_line

_CODES: Final = {name: code for code, name in enumerate(hook_line.HOOKS)}


class NotOursError(Exception):
    """Whoever listens there does not know the line."""


class SilentError(NotOursError):
    """It said nothing in time, and may know it."""


class Line:
    """Of one connection; ``usable`` until it is lost."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._next = 1

    @property
    def usable(self) -> bool:
        return not self._wire.lost

    def start(self, hook: str, message: bytes, timeout_s: float, ended: Ended) -> Cancel:
        wire, number = self._wire, self._next
        self._next = number % 0xFFFFFFFF + 1
        if wire.lost:
            ended(CallError(GRPC_UNAVAILABLE, "the server has closed the connection"))
            return lambda: None
        if len(message) > hook_line.MAX_PAYLOAD_BYTES:
            ended(CallError(GRPC_RESOURCE_EXHAUSTED, f"the request has {len(message)} bytes"))
            return lambda: None
        wire.send(hook_line.frame(number, _CODES[hook], message))
        timer = wire.loop.call_later(timeout_s, wire.expire, number, timeout_s)
        wire.waiting[number] = (ended, timer)
        return lambda: wire.forget(number)

    def close(self) -> None:
        self._wire.end("closed")


async def connect(path: str, timeout_s: float) -> Line:
    """Raises NotOursError, also when there is no answer in this time, and CallError when nobody
    listens."""
    loop = asyncio.get_running_loop()
    wire: _Wire | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, wire = await loop.create_unix_connection(_Wire, path)
            await wire.greeted
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise SilentError from None
        text = os.strerror(error.errno) if error.errno else str(error)
        raise CallError(GRPC_UNAVAILABLE, f"{path}: {text}") from error
    finally:
        if wire is not None and not (wire.greeted.done() and not wire.greeted.cancelled()):
            wire.end("no greeting")
    return Line(wire)


def _error(status: int, payload: bytes) -> CallError:
    return CallError(status, payload.decode("utf-8", "replace"))


class _Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[None] = self.loop.create_future()
        self.waiting: dict[int, tuple[Ended, asyncio.TimerHandle]] = {}
        self.lost = False
        self._begun = b""
        self._reader = hook_line.Reader()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(hook_line.GREETING)

    def data_received(self, data: bytes) -> None:
        if not self.greeted.done():
            data = self._greeting(data)
        try:
            for number, status, payload in self._reader.feed(data):
                self._end(number, payload if status == GRPC_OK else _error(status, payload))
        except hook_line.LineError as error:
            self.end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("the server has closed the connection")

    def send(self, raw: bytes) -> None:
        self._transport.write(raw)

    def end(self, why: str) -> None:
        self.lost = True
        if not self.greeted.done():
            self.greeted.set_exception(NotOursError())
            self.greeted.exception()  # whoever waited may have gone
        for number in tuple(self.waiting):
            self._end(number, CallError(GRPC_UNAVAILABLE, why))
        self._transport.abort()

    def expire(self, number: int, timeout_s: float) -> None:
        self._end(number, expired(timeout_s))

    def forget(self, number: int) -> None:
        """Nobody waits for the answer any more."""
        found = self.waiting.pop(number, None)
        if found is not None:
            found[1].cancel()

    def _end(self, number: int, result: bytes | CallError) -> None:
        found = self.waiting.pop(number, None)
        if found is not None:
            ended, timer = found
            timer.cancel()
            ended(result)

    def _greeting(self, data: bytes) -> bytes:
        """What comes after it."""
        self._begun += data
        size = len(hook_line.GREETING)
        if not hook_line.GREETING.startswith(self._begun[:size]):
            self.end("another protocol")
            return b""
        if len(self._begun) < size:
            return b""
        self.greeted.set_result(None)
        return self._begun[size:]
