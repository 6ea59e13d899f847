"""The HTTP server: pages, health, what a client may and may not do, addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koordlet.report import metrics as table
from koordlet.report.health import Health, routes
from koordlet.report.http import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    Address,
    HttpServer,
    ListenError,
    Response,
    parse_address,
)
from koordlet.report.metrics import Metrics

GET = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class _State:
    health = Health(tick_age_s=0.5, limit_s=5.0)


async def _crash() -> Response:
    raise RuntimeError("a defect")


def _serve(test: Callable[[HttpServer, _State], Awaitable[None]], address: Address) -> None:
    async def body() -> None:
        state = _State()
        metrics = Metrics(node="n")
        for number in range(2000):  # more than one slice of a page
            metrics.set(table.CAPABILITY, 1.0, (f"{number:04}",))
        metrics.set(table.POD_PSI, 1.0, ("",) * 7)
        server = HttpServer(address, routes(metrics, lambda: state.health) | {"/crash": _crash})
        await server.start()
        try:
            await test(server, state)
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(body(), 60))


async def _talk(server: HttpServer, data: bytes | str) -> bytes:
    if server.address.path:
        reader, writer = await asyncio.open_unix_connection(server.address.path)
    else:
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    try:
        writer.write(data.encode() if isinstance(data, str) else data)
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


LOOPBACK = Address(host="127.0.0.1", port=0)


def test_pages_and_health() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        whole = await _talk(server, GET.format("/metrics"))
        head, _, body = whole.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert body.count(b"koordlet_capability{") == 2000
        internal = (await _talk(server, GET.format("/internal-metrics"))).partition(b"\r\n\r\n")[2]
        external = (await _talk(server, GET.format("/external-metrics?x=y"))).partition(
            b"\r\n\r\n"
        )[2]
        assert internal + external == body

        assert (await _talk(server, GET.format("/healthz"))).endswith(b"\r\n\r\nok\n")
        assert b'{"ready":true,"reasons":[]}' in await _talk(server, GET.format("/readyz"))
        state.health = Health(tick_age_s=9.0, limit_s=5.0, not_ready=("source x has not listed",))
        dead = await _talk(server, GET.format("/healthz"))
        assert dead.startswith(b"HTTP/1.1 503 ")
        assert b"9.0 s ago" in dead
        waiting = await _talk(server, GET.format("/readyz"))
        assert waiting.startswith(b"HTTP/1.1 503 ")
        assert b'{"ready":false,"reasons":["source x has not listed"]}' in waiting

    _serve(test, LOOPBACK)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (GET.format("/nothing"), 404),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("GET /crash HTTP/1.1\r\nConnection: close\r\n\r\n", 500),
        ("nonsense\r\n\r\n", 400),
        ("GET /metrics SPDY/3\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost", 400),
        (f"GET /metrics HTTP/1.1\r\nX: {'x' * MAX_HEAD_BYTES}\r\n\r\n", 431),
        ("x" * (2 * MAX_HEAD_BYTES), 431),
    ],
)
def test_requests_that_get_an_error(request_text: str, status: int) -> None:
    async def test(server: HttpServer, state: _State) -> None:
        answer = await _talk(server, request_text)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert answer.count(b"HTTP/1.1") == 1
        assert (b"Allow: GET, HEAD\r\n" in answer) == (status == 405)
        assert (await _talk(server, GET.format("/healthz"))).startswith(b"HTTP/1.1 200 ")

    _serve(test, LOOPBACK)


def test_head_and_kept_connection() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        two = "HEAD /healthz HTTP/1.1\r\n\r\n" + GET.format("/healthz")
        answer = await _talk(server, two)
        first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
        assert b"Content-Length: 3\r\nConnection: keep-alive\r\n\r\n" in first
        assert not first.endswith(b"ok\n")
        assert second.endswith(b"Connection: close\r\n\r\nok\n")
        old = await _talk(server, "GET /healthz HTTP/1.0\r\n\r\n")
        assert b"Connection: close" in old

    _serve(test, LOOPBACK)


def test_random_bytes_leave_the_server_alive() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        rng = random.Random(1)
        for _ in range(100):
            junk = rng.randbytes(rng.randrange(300)) + rng.choice((b"\r\n\r\n", b"", b" HTTP/1.1"))
            try:
                await _talk(server, junk)
            except ConnectionError:
                continue
        assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")

    _serve(test, LOOPBACK)


def test_too_many_connections_are_closed_and_stop_does_not_wait() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        held = [
            await asyncio.open_connection(server.address.host, server.address.port)
            for _ in range(MAX_CONNECTIONS)
        ]
        while len(server._connections) < MAX_CONNECTIONS:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert not held[0][0].at_eof()

    _serve(test, LOOPBACK)


def test_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.sock")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()

    async def test(server: HttpServer, state: _State) -> None:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")
        with pytest.raises(ListenError, match=r"metrics\.sock: Address already in use"):
            await HttpServer(server.address, {}).start()
        assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")

    _serve(test, Address(path=path))
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    path.write_text("precious")
    with pytest.raises(ListenError, match="Address already in use"):
        asyncio.run(HttpServer(Address(path=str(path)), {}).start())
    assert path.read_text() == "precious"


def test_a_port_in_use_is_a_typed_failure() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        with pytest.raises(ListenError, match=f"127.0.0.1:{server.address.port}: Address already"):
            await HttpServer(server.address, {}).start()

    _serve(test, LOOPBACK)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9316", Address("127.0.0.1", 9316)),
        ("localhost:9316", Address("127.0.0.1", 9316)),
        ("[::1]:0", Address("::1", 0)),
        ("unix:/run/koordlet/metrics.sock", Address(path="/run/koordlet/metrics.sock")),
        ("remote:0.0.0.0:9316", Address("0.0.0.0", 9316)),
        ("off", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    if address is not None and text != "localhost:9316":
        assert str(address) == text.removeprefix("remote:")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0:9316", "other machines can reach"),
        ("[::]:9316", "other machines can reach"),
        (":9316", "no IP address"),
        ("remote::9316", "no IP address"),
        ("example:9316", "no IP address"),
        ("127.0.0.1", "is none of"),
        ("127.0.0.1:http", "is none of"),
        ("127.0.0.1:70000", "is none of"),
        ("unix:metrics.sock", "must be absolute"),
        ("", "is none of"),
    ],
)
def test_refused_addresses(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_address(text)
