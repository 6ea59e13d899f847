"""Health and metrics answer whoever else reaches their ports, and hold few bytes for anybody."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from koord_scheduler.services import gate, http
from koord_scheduler.services.http import Address, Page, Reply, Route, serving
from koord_scheduler.webhook import line

LARGE = 4 << 20
PUT = b"PUT /echo/a?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
ASK = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


def played(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(story)
    def test(**given: Any) -> None:
        async def whole() -> None:
            await story(**given)

        asyncio.run(whole())

    return test


@contextlib.asynccontextmanager
async def port(**pages: str) -> AsyncIterator[int]:
    def showing(text: str) -> Page:
        return lambda: (200, text)

    shown = {f"/{path}": showing(text) for path, text in pages.items()}
    echo = Route(
        "*", "/echo/{name}", lambda r: Reply(200, f"{r.method} {r.names['name']} {r.body}")
    )
    shown["/healthz"] = lambda: (200, "ok")
    async with serving(Address("127.0.0.1", 0), shown, [echo]) as found:
        yield found


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> list[gate.Gate]:
    """Those that are made."""
    found: list[gate.Gate] = []

    class Noted(gate.Gate):
        def __init__(self, make: Any) -> None:
            super().__init__(make)
            found.append(self)

    monkeypatch.setattr(http, "Gate", Noted)
    return found


async def said(number: int, request: bytes = ASK) -> bytes:
    """All that one connection gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    try:
        writer.write(request.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost", 1))
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def until_dropped(found: gate.Gate, why: str, number: int = 1) -> None:
    async with asyncio.timeout(20):
        while found.dropped[why] < number:
            await asyncio.sleep(0.01)


@played
async def test_what_is_asked_is_answered_one_after_the_other(gates: list[gate.Gate]) -> None:
    async with port(metrics="m" * LARGE) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        for _ in range(3):
            writer.write(ASK)
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"ok"
        writer.write(ASK.replace(b"GET", b"HEAD"))
        assert b"Content-Length: 2" in await reader.readuntil(b"\r\n\r\n")
        writer.write(PUT % 4 + b"body")
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(10) == b"PUT a body"
        writer.write(ASK.replace(b"/healthz", b"/nothing"))
        assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        page = await said(number, ASK.replace(b"/healthz", b"/metrics"))
        assert page.endswith(b"m" * LARGE) and b"Content-Length: %d" % LARGE in page
        assert not gates[0].dropped


@played
async def test_idle_connections_shut_nobody_out(gates: list[gate.Gate]) -> None:
    async with port() as number, contextlib.AsyncExitStack() as opened:
        for _ in range(4 * gate.PLACES):
            _, writer = await asyncio.open_connection("127.0.0.1", number)
            opened.callback(writer.close)
            writer.write(b"GET /healthz HT")
        assert (await said(number)).endswith(b"ok")
        await until_dropped(gates[0], "full", 4 * gate.PLACES + 1 - gate.PLACES_OF_ONE)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ASK * 500, "pipelined"),
        (ASK[:-2] + b"a: b\r\n" * 100_000, "too large"),
        (PUT % 99_999 + b"x" * 99_999, "too large"),
    ],
    ids=["pipelined", "headers without end", "a large body"],
)
@played
async def test_who_sends_too_much_has_to_go(
    gates: list[gate.Gate], request_: bytes, why: str
) -> None:
    async with port() as number:
        assert not (await said(number, request_)).count(b"200 OK") > 1
        await until_dropped(gates[0], why)
        assert (await said(number)).endswith(b"ok")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (ASK[:-2] + b"a: " + b"b" * 9000 + b"\r\n\r\n", b"400"),
        (PUT % 5000 + b"x" * 5000, b"413"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
@played
async def test_who_sends_somewhat_too_much_is_told(
    gates: list[gate.Gate], request_: bytes, status: bytes
) -> None:
    async with port() as number:
        assert b" %b " % status in (await said(number, request_)).partition(b"\r\n")[0]


@played
async def test_who_drips_and_who_does_not_read_has_to_go(
    gates: list[gate.Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "READ_S", 0.3)
    monkeypatch.setattr(http, "WRITE_S", 0.3)
    async with port(metrics="m" * LARGE) as number:
        _, drips = await asyncio.open_connection("127.0.0.1", number)
        with contextlib.suppress(ConnectionError):
            for each in ASK:
                drips.write(bytes((each,)))
                await drips.drain()
                await asyncio.sleep(0.05)
        await until_dropped(gates[0], "slow")
        drips.close()
        stuck = [await asyncio.open_connection("127.0.0.1", number, limit=1) for _ in range(8)]
        for _, writer in stuck:
            writer.write(ASK.replace(b"/healthz", b"/metrics"))
        # Those that hold more than is held for all have to go at once, the others soon.
        await until_dropped(gates[0], "memory", 8 - gate.MOST_HELD_BYTES // LARGE)
        assert (await said(number)).endswith(b"ok")
        await until_dropped(gates[0], "slow", 2)
        for _, writer in stuck:
            writer.close()


@played
async def test_who_asks_in_a_loop_takes_a_part_of_a_core(
    gates: list[gate.Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BURST_MS", 10)
    spent_s = 0.0

    def works() -> tuple[int, str]:
        nonlocal spent_s
        begun_s = time.thread_time()
        while time.thread_time() - begun_s < 0.02:
            pass
        spent_s += 0.02
        return 200, "ok"

    async with serving(Address("127.0.0.1", 0), {"/healthz": works}) as number:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await asyncio.gather(*(said(number) for _ in range(6)))
        # The last answer need not rest, and the first 10 ms are free.
        assert spent_s - 0.03 <= http.CORES * (loop.time() - begun_s)
