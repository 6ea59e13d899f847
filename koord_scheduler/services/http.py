"""Health and metrics over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from aiohttp import web

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


_LONGEST_REQUEST = 4096


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
    app = web.Application(client_max_size=_LONGEST_REQUEST)
    for path, page in pages.items():
        app.router.add_get(path, _handler(page))
    for route in routes:
        app.router.add_route(route.method, route.path, _reply(route))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host or None, address.port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _handler(page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.Response:
        status, text = page()
        return web.Response(status=status, text=text, content_type="text/plain")

    return handle


def _reply(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.Response:
        raw = await request.read()
        body = raw.decode("utf-8", "replace")
        made = Request(request.method, dict(request.match_info), dict(request.query), body)
        status, text, content_type = route.reply(made)
        return web.Response(status=status, text=text, content_type=content_type)

    return handle
