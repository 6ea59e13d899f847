"""The way to a hook server: koordlet's line where it is known, gRPC where it is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koordlet.decision.answer import Combined
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.hookserver.server import HookServer as Daemon
from koordlet.runtimeproxy.servers.client import AwayError, HookClient, HookError
from koordlet.serving.door import Own
from koordlet.wire import hook_line
from koordlet.wire.pb import hook_pb2 as hook
from tests.hookserver.fakes import FakeAsk, container_request, failing, wanted
from tests.runtimeproxy.hook_rig import HookServer, echo_hook
from tests.runtimeproxy.rig import in_loop, serve, until

CREATE = Stage.CREATE_CONTAINER


@asynccontextmanager
async def daemon(path: Path, ask: FakeAsk, own: Own | None = None) -> AsyncIterator[Daemon]:
    server = Daemon(ask, str(path))
    if own is not None:
        server._own = None  # as before the line was
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def speaks_line(client: HookClient) -> bool:
    return client._line is not None and client._line.usable and client._unary is None


@in_loop
async def test_a_daemon_that_knows_the_line(tmp_path: Path) -> None:
    path, ask = tmp_path / "hooks.sock", FakeAsk()
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))
    client = HookClient(str(path), 5.0)
    async with daemon(path, ask):
        for _ in range(3):
            answer = await client.call(CREATE, container_request())
            assert answer.container_resources.cpu_shares == 2
            assert not answer.container_envs
        found = await asyncio.gather(*(client.call(CREATE, container_request()) for _ in range(50)))
        assert len(found) == 50
        assert speaks_line(client)
        ask.error = failing()
        with pytest.raises(HookError, match="no such CPU 99") as caught:
            await client.call(CREATE, container_request())
        assert not isinstance(caught.value, AwayError)
    assert client.breaker.error == ""
    with pytest.raises(AwayError):
        await client.call(CREATE, container_request())
    ask.error = None
    async with daemon(path, ask):
        client.breaker.until_s = 0
        assert (await client.call(CREATE, container_request())).container_resources.cpu_shares == 2
        assert speaks_line(client)
    client.close()


@in_loop
async def test_an_older_daemon_and_a_hook_server_of_others(tmp_path: Path) -> None:
    ask = FakeAsk()
    older, other = tmp_path / "older.sock", tmp_path / "other.sock"
    server = await serve(HookServer(echo_hook), str(other))
    async with daemon(older, ask, own=Own(b"", None)):  # type: ignore[arg-type]
        for path in (older, other):
            client = HookClient(str(path), 5.0)
            for _ in range(3):
                answer = await client.call(CREATE, container_request())
                assert answer.container_envs["PATH"] == "/bin"
            assert client._line is None and client._unary is not None
            assert client.breaker.error == ""
            client.close()
    await server.stop(None)


@in_loop
async def test_the_server_at_a_path_may_change(tmp_path: Path) -> None:
    """The line is tried once for each socket, and again when there is another one."""
    path, ask = tmp_path / "hooks.sock", FakeAsk()
    client = HookClient(str(path), 5.0)
    for _ in range(2):
        server = await serve(HookServer(echo_hook), str(path))
        await client.call(CREATE, container_request())
        assert client._unary is not None and client._unary.usable
        await server.stop(None)
        await until(lambda: not client._connected)
        async with daemon(path, ask):
            client.breaker.until_s = 0
            await client.call(CREATE, container_request())
            assert client._line is not None and client._line.usable
        await until(lambda: not client._connected)
    client.close()


@in_loop
async def test_a_server_that_says_nothing_costs_the_budget_once(tmp_path: Path) -> None:
    connections = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, path := str(tmp_path / "s.sock"))
    client = HookClient(path, 0.4)
    with pytest.raises(AwayError, match="DEADLINE_EXCEEDED"):
        await client.call(CREATE, container_request())
    with pytest.raises(AwayError, match="not asked for another"):
        await client.call(CREATE, container_request())
    assert connections == 2  # one that tried the line, one of gRPC
    client.close()
    server.close()


@pytest.mark.parametrize(
    "answer",
    [
        hook_line.GREETING[:10],
        hook_line.GREETING + b"\xff" * 9,
        hook_line.GREETING + hook_line.frame(1, 0, b"\xff\xff\xff"),
        hook_line.GREETING + hook_line.frame(1, 0, b"\x0a\x06\x0a\x01\xff\x12\x01\xfe"),
    ],
    ids=["greeting", "length", "message", "utf8"],
)
@in_loop
async def test_a_line_that_goes_wrong(tmp_path: Path, answer: bytes) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(answer[:24])
        if len(answer) > 24:
            await reader.read(1)
            writer.write(answer[24:])
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(odd, path := str(tmp_path / "s.sock"))
    client = HookClient(path, 0.4)
    with pytest.raises(AwayError):
        await client.call(CREATE, container_request())
    client.close()
    server.close()


@in_loop
async def test_a_call_that_is_given_up_leaves_the_line_in_order(tmp_path: Path) -> None:
    path, ask = tmp_path / "hooks.sock", FakeAsk()
    client = HookClient(str(path), 5.0)
    async with daemon(path, ask):
        await client.call(CREATE, container_request())
        heard: list[Any] = []
        stop = client.start(CREATE, container_request(), heard.append)
        assert stop is not None
        stop()
        answer = await client.call(CREATE, container_request())
        assert isinstance(answer, hook.ContainerResourceHookResponse)
        assert heard == []
        waiting = client.start(CREATE, container_request(), heard.append)
        assert waiting is not None
        client.close()
        assert [type(each) for each in heard] == [AwayError]
    assert not os.path.exists(path)


@in_loop
async def test_whoever_hangs_on_the_line_costs_the_budget_once(tmp_path: Path) -> None:
    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        writer.write(hook_line.GREETING)
        await reader.read(1 << 16)
        await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_unix_server(hangs, path := str(tmp_path / "s.sock"))
    client = HookClient(path, 0.3)
    with pytest.raises(AwayError, match="DEADLINE_EXCEEDED"):
        await client.call(CREATE, container_request())
    assert not client._connected  # it may be a process that was replaced
    client.close()
    server.close()
