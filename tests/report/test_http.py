"""The HTTP server: pages, health, what a client may and may not do, addresses."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import math
import os
import random
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from koordlet.decision.family import Page
from koordlet.report import http
from koordlet.report import metrics as table
from koordlet.report.health import HEALTH_PATHS, Health, routes
from koordlet.report.http import (
    CHUNK_BYTES,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    RESERVE,
    Address,
    HttpServer,
    ListenError,
    Response,
    parse_address,
)
from koordlet.report.page import SAMPLES_AT_ONCE
from koordlet.report.pages import ALIVE, Pages
from koordlet.report.registry import Metrics
from koordlet.serving.listener import Pace

GET = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
GET_KEPT = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
_Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _State:
    health = Health(tick_age_s=0.5, limit_s=5.0)


async def _crash(_headers: Mapping[str, str]) -> Response:
    raise RuntimeError("a defect")


def _serve(test: Callable[[HttpServer, _State], Awaitable[None]], address: Address) -> None:
    async def body() -> None:
        state = _State()
        metrics = Metrics(node="n")
        for number in range(2000):  # more than one slice of a page
            metrics.set(table.CAPABILITY, 1.0, (f"{number:04}",))
        metrics.set(table.POD_PSI, 1.0, ("",) * 7)
        pages = Pages(metrics, lambda: ())
        handlers = routes(pages, lambda: state.health) | {"/crash": _crash}
        server = HttpServer(address, handlers, urgent=HEALTH_PATHS)
        server.pages = pages  # type: ignore[attr-defined]
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


def test_openmetrics_and_gzip_for_those_who_accept_them() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        ask = "GET /metrics HTTP/1.1\r\nConnection: close\r\n{}\r\n"
        plain = (await _talk(server, ask.format(""))).partition(b"\r\n\r\n")[2]
        packed = await _talk(server, ask.format("Accept-Encoding: br, GZIP;q=0.5\r\n"))
        head, _, body = packed.partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head.split(b"\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert len(body) < len(plain) / 5
        assert gzip.decompress(body) == plain
        other = await _talk(
            server, ask.format("Accept: application/openmetrics-text; version=1.0.0\r\n")
        )
        head, _, body = other.partition(b"\r\n\r\n")
        kind = b"Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert kind in head.split(b"\r\n")
        assert body == plain + b"# EOF\n"
        odd = "Accept: application/openmetrics-text;version=1.1.x\nSet-Cookie: a=b\r\n"
        head = (await _talk(server, ask.format(odd))).partition(b"\r\n\r\n")[0]
        assert kind in head.split(b"\r\n") and b"ookie" not in head

    _serve(test, LOOPBACK)


SCRAPE_LATE = """
import asyncio, sys
import koordlet.cli.main, koordlet.cli.process.run, koordlet.daemon.servers
from koordlet.report.health import Health, routes
from koordlet.report.pages import Pages
from koordlet.report.registry import Metrics

async def main():
    handlers = routes(Pages(Metrics("n"), lambda: ()), lambda: Health(0, 1))
    await handlers["/healthz"]({})
    await handlers["/readyz"]({})
    assert "prometheus_client" not in sys.modules
    await handlers["/metrics"]({})
    assert "prometheus_client" in sys.modules

asyncio.run(main())
"""


def test_the_client_library_comes_with_the_first_scrape() -> None:
    subprocess.run([sys.executable, "-c", SCRAPE_LATE], check=True)


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


async def _held(server: HttpServer, count: int, first: bytes = b"") -> list[_Client]:
    """Connections that say ``first`` and nothing more."""
    found = []
    for _ in range(count):
        client = await asyncio.open_connection(server.address.host, server.address.port)
        client[1].write(first)
        found.append(client)
    return found


@pytest.mark.parametrize("count", [MAX_CONNECTIONS, 200])
@pytest.mark.parametrize("first", [b"", b"GET /metrics HTTP/1.1\r\nX: ", GET_KEPT])
def test_idle_connections_shut_nobody_out(count: int, first: bytes) -> None:
    """Silent, in the middle of a head, or kept after an answer: the idlest go."""

    async def test(server: HttpServer, state: _State) -> None:
        held = await _held(server, count, first)
        for _ in range(3):
            answer = await _talk(server, GET.format("/metrics"))
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")
        assert len(server._slots) <= MAX_CONNECTIONS
        assert server.dropped["idle"] == count - MAX_CONNECTIONS + 1
        assert server.dropped["full"] == 0
        for _, writer in held:
            writer.close()

    _serve(test, LOOPBACK)


def test_the_idlest_goes_and_one_that_has_just_asked_stays() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        asking = await asyncio.open_connection(server.address.host, server.address.port)
        held = await _held(server, MAX_CONNECTIONS - 1)
        while len(server._slots) < MAX_CONNECTIONS:
            await asyncio.sleep(0.01)
        asking[1].write(GET_KEPT)
        assert (await asking[0].readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
        assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")
        with contextlib.suppress(ConnectionResetError):
            assert await held[0][0].read() == b""
        assert not held[1][0].at_eof()
        asking[1].write(GET_KEPT)
        assert (await asking[0].readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
        assert server.dropped == {"idle": 1, "slow": 0, "full": 0}

    _serve(test, LOOPBACK)


def test_health_answers_while_every_place_is_being_worked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(server: HttpServer, state: _State) -> None:
        waiting = asyncio.Event()

        async def slow_page(_headers: Mapping[str, str]) -> Response:
            await waiting.wait()
            return Response(200, b"at last\n", "text/plain")

        server._routes = {**server._routes, "/slow": slow_page}  # type: ignore[dict-item]
        held = await _held(server, MAX_CONNECTIONS, GET.format("/slow").encode())
        while not all(slot.spared_until == math.inf for slot in server._slots._taken) or (
            len(server._slots) < MAX_CONNECTIONS
        ):
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")
            assert b'"ready":true' in await _talk(server, GET.format("/readyz"))
            refused = await _talk(server, GET.format("/metrics"))
            assert refused.startswith(b"HTTP/1.1 503 ")
        idle = await _held(server, 3 * RESERVE)
        assert (await _talk(server, GET.format("/healthz"))).endswith(b"ok\n")
        waiting.set()
        for reader, _ in held:
            assert (await reader.read()).endswith(b"at last\n")
        for _, writer in idle:
            writer.close()

    _serve(test, LOOPBACK)


def test_clients_that_read_nothing_cost_one_piece_each_and_have_to_go() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        socks = []
        for _ in range(MAX_CONNECTIONS):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect((server.address.host, server.address.port))
            socks.append(sock)
        loop = asyncio.get_running_loop()
        for sock in socks:
            await loop.sock_sendall(sock, GET.format("/metrics").encode())
        while not all(s.spared_until not in (-math.inf, math.inf) for s in server._slots._taken):
            await asyncio.sleep(0.01)
        assert len(server.pages._alive) <= ALIVE  # type: ignore[attr-defined]
        for slot in server._slots._taken:
            unsent_bytes = slot.drop.__self__.get_write_buffer_size()  # type: ignore[attr-defined]
            assert unsent_bytes <= 2 * CHUNK_BYTES
            slot.spared_until = slot.idle_since  # a second later
        for _ in range(5):
            assert (await _talk(server, GET.format("/metrics"))).startswith(b"HTTP/1.1 200 ")
        assert server.dropped["idle"] == 1
        for sock in socks:
            sock.close()

    _serve(test, LOOPBACK)


def test_a_head_that_does_not_end_and_an_answer_that_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr(http, "WRITE_TIMEOUT_S", 0.05)

    async def test(server: HttpServer, state: _State) -> None:
        for reader, writer in await _held(server, 3, b"GET /metrics HTTP/1.1\r\n"):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        for reader, writer in await _held(server, 2):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert server.dropped == {"idle": 0, "slow": 5, "full": 0}
        assert len(server._slots) == 0

    _serve(test, LOOPBACK)


def test_pages_have_a_budget_of_cpu() -> None:
    """Whoever asks in a loop gets the last page again."""
    metrics = Metrics(node="n")
    both, internal = (Page.INTERNAL, Page.EXTERNAL), (Page.INTERNAL,)
    refreshed = []
    pages = Pages(metrics, lambda: [refreshed.append(1)])

    async def body() -> None:
        pages._budget_ms = Pace(50, 1000, lambda: 0.0)  # time stands still
        seen = [await pages.answer(both, {}) for _ in range(5)]
        assert len(set(map(id, seen))) > 1, "while there is a budget each page is fresh"
        del seen
        pages._budget_ms.wait_s(2000)
        last = await pages.answer(both, {})
        made = len(refreshed)
        for _ in range(100):
            assert await pages.answer(both, {}) is last
        assert len(refreshed) == made
        assert pages.reused == 100
        # Another page has never been made: it is, once.
        other = await pages.answer(internal, {})
        assert other is not last
        assert await pages.answer(internal, {}) is other
        # A client cannot make it keep one page for each thing it accepts.
        for number in range(100):
            accept = f"application/openmetrics-text;version=1.{number}.0;escaping=dots"
            await pages.answer(internal, {"accept": accept, "accept-encoding": f"gzip;q={number}"})
        assert len(pages._kept) == 3

    asyncio.run(body())


def test_the_loop_goes_on_while_a_page_is_made() -> None:
    """After each step of the refresh and after each piece. A family shows what it had at its
    first."""
    metrics = Metrics(node="n")
    count, steps = 10 * SAMPLES_AT_ONCE, 5
    turns: list[int] = []

    def refresh() -> Iterator[None]:
        for _ in range(steps):
            yield
        metrics.replace(table.CAPABILITY, {(f"{number:05}",): 1.0 for number in range(count)})

    async def others() -> None:
        while True:
            turns.append(len(metrics.scalars.get(table.CAPABILITY, ())))
            if turns[-1]:
                metrics.replace(table.CAPABILITY, {})
            await asyncio.sleep(0)

    async def body() -> None:
        pages = Pages(metrics, refresh)
        await pages.answer((Page.EXTERNAL,), {})  # loads the library
        task = asyncio.create_task(others())
        response = await pages.answer((Page.INTERNAL,), {})
        task.cancel()
        assert len(turns) >= steps + count // SAMPLES_AT_ONCE
        assert response.body.count(b"koordlet_capability{") == count

    asyncio.run(body())


def test_stop_does_not_wait() -> None:
    async def test(server: HttpServer, state: _State) -> None:
        await _held(server, 5)

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
