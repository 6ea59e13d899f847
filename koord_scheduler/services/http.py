"""Health and metrics over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler as HttpHandler

from koord_scheduler.services.gate import Gate, PlainLine
from koord_scheduler.webhook.line import WRITE_S
from koord_scheduler.webhook.turns import Peer, Turns
from koordlet.serving.listener import Pace

Answer = tuple[int, str]
Page = Callable[[], Answer]
JSON = "application/json"


class Request(NamedTuple):
    """``names``: what stands at the places of a route's path; ``query``: the last value of each;
    ``body``: as text, empty where it is none."""

    method: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: str


class Reply(NamedTuple):
    status: int
    text: str
    content_type: str = JSON


class Route(NamedTuple):
    """``path`` with places, as ``/apis/v1/nodes/{node}``. ``method`` ``*``: all of them."""

    method: str
    path: str
    reply: Callable[[Request], Reply]


CORES, BURST_MS = 0.1, 500
"""Most CPU of the answers of a port in the long run, and at once: the loop has other work too."""
_REQUEST_S = 0.0003
"""CPU of an answer besides its text."""
_LONGEST_REQUEST = 4096
_CHUNK_BYTES = 64 << 10


class Address(NamedTuple):
    """``host`` empty: every address of the machine. ``port`` 0: any that is free."""

    host: str
    port: int


def parse_address(text: str) -> Address | None:
    """``HOST:PORT`` or ``:PORT``, with an IPv6 address in brackets; ``0`` means none. Raises
    ValueError with what is wrong."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address: write HOST:PORT or :PORT, or 0 for none")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


@contextlib.asynccontextmanager
async def serving(
    address: Address | None, pages: Mapping[str, Page], routes: Sequence[Route] = ()
) -> AsyncIterator[int]:
    """``pages``: path -> what makes its status and text. Gives the port; 0 where ``address`` is
    None. Raises OSError where the address cannot be had."""
    if address is None:
        yield 0
        return
    served = _Served()
    app = web.Application(client_max_size=_LONGEST_REQUEST, middlewares=[served.answered])
    for path, page in pages.items():
        app.router.add_get(path, _handler(page))
    for route in routes:
        app.router.add_route(route.method, route.path, _reply(route))
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,
        auto_decompress=False,  # a bomb is small
        max_line_size=_LONGEST_REQUEST,
        max_field_size=_LONGEST_REQUEST,
    )
    await runner.setup()
    assert runner.server is not None
    gate = Gate(runner.server)
    try:
        yield gate.open(address.host, address.port)
    finally:
        await gate.close()
        await runner.cleanup()


class _Served:
    """Answers of one port. What they take of the event loop has a bound, and is shared out among
    those who ask."""

    def __init__(self) -> None:
        self._turns = Turns(1)
        self._pace = Pace(CORES * 1000, BURST_MS)
        """Of milliseconds of CPU."""

    @web.middleware
    async def answered(self, request: web.Request, handler: HttpHandler) -> web.StreamResponse:
        line = _line(request)
        try:
            await request.read()
            line.waits()
            made = await self._made(line.peer, request, handler)
            body = made.body
            if isinstance(body, bytes) and len(body) > _CHUNK_BYTES and request.method != "HEAD":
                line.answers(len(body))
                return await _in_pieces(request, made, body)
            return made
        except TimeoutError:
            line.drop("slow")
            raise ConnectionResetError from None
        finally:
            line.rests()

    async def _made(self, peer: Peer, request: web.Request, handler: HttpHandler) -> web.Response:
        await self._turns.take(peer)
        begun_s = time.thread_time()
        try:
            made = await handler(request)
        finally:
            spent_s = time.thread_time() - begun_s + _REQUEST_S
            rest_s = self._pace.wait_s(spent_s * 1000)
            asyncio.get_running_loop().call_later(rest_s, self._turns.give, peer, spent_s)
        assert isinstance(made, web.Response)
        return made


async def _in_pieces(request: web.Request, made: web.Response, body: bytes) -> web.StreamResponse:
    """Who reads slowly costs one piece beside the answer. Raises TimeoutError."""
    answer = web.StreamResponse(status=made.status, headers=made.headers)
    answer.content_length = len(body)
    async with asyncio.timeout(WRITE_S):
        await answer.prepare(request)
        for start in range(0, len(body), _CHUNK_BYTES):
            await answer.write(body[start : start + _CHUNK_BYTES])
        await answer.write_eof()
    return answer


def _line(request: web.Request) -> PlainLine:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    line = transport.get_protocol()
    assert isinstance(line, PlainLine)
    return line


def _handler(page: Page) -> HttpHandler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        status, text = page()
        return web.Response(status=status, text=text, content_type="text/plain")

    return handle


def _reply(route: Route) -> HttpHandler:
    async def handle(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = raw.decode("utf-8", "replace")
        made = Request(request.method, dict(request.match_info), dict(request.query), body)
        status, text, content_type = route.reply(made)
        return web.Response(status=status, text=text, content_type=content_type)

    return handle
