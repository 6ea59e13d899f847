"""The hook API through its socket, called as a proxy calls it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordlet.decision.answer import Combined
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.hookserver.server import HookServer
from koordlet.hookserver.service import METHODS, SERVICE
from koordlet.serving.door import MAX_CONNECTIONS
from koordlet.serving.unix_socket import SocketError
from koordlet.wire.pb import hook_pb2 as pb
from koordlet.wire.pb.hook_pb2_grpc import RuntimeHookServiceStub

from .fakes import FakeAsk, container_request, failing, resources, sandbox_request, wanted

Body = Callable[[FakeAsk, HookServer, RuntimeHookServiceStub, grpc.aio.Channel], Awaitable[None]]


@asynccontextmanager
async def _serving(path: Path) -> AsyncIterator[tuple[FakeAsk, HookServer]]:
    ask = FakeAsk()
    server = HookServer(ask, str(path))
    await server.start()
    try:
        yield ask, server
    finally:
        await server.stop()


def run(tmp_path: Path, body: Body) -> None:
    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        async with (
            _serving(path) as (ask, server),
            grpc.aio.insecure_channel(f"unix:{path}") as channel,
        ):
            await body(ask, server, RuntimeHookServiceStub(channel), channel)

    asyncio.run(whole())


def test_every_method_of_the_api_is_answered(tmp_path: Path) -> None:
    async def body(ask: FakeAsk, server: HookServer, stub: Any, channel: Any) -> None:
        methods = pb.DESCRIPTOR.services_by_name["RuntimeHookService"].methods
        ours = {"PreUpdatePodSandboxResourcesHook"}
        assert {method.name for method in methods} == set(METHODS) - ours
        ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))
        for method in methods:
            sandbox = "Sandbox" in method.name
            request = sandbox_request() if sandbox else container_request()
            response = await getattr(stub, method.name)(request)
            found = response.resources if sandbox else response.container_resources
            assert found.cpu_shares == 2
        stages = {stage for name, stage in METHODS.items() if name not in ours}
        assert {calls.stage for calls in server.status().stages} == stages
        assert all(calls.calls == 1 for calls in server.status().stages)

    run(tmp_path, body)


def test_many_calls_at_once(tmp_path: Path) -> None:
    async def body(ask: FakeAsk, server: HookServer, stub: Any, channel: Any) -> None:
        calls = [stub.PreCreateContainerHook(container_request()) for _ in range(50)]
        responses = await asyncio.gather(*calls)
        assert all(each.container_resources == resources() for each in responses)
        assert server.status().stages[0].calls == 50

    run(tmp_path, body)


def test_failures_have_codes_and_do_not_end_the_server(tmp_path: Path) -> None:
    async def body(ask: FakeAsk, server: HookServer, stub: Any, channel: Any) -> None:
        async def code(request: Any) -> tuple[grpc.StatusCode, str]:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.PreCreateContainerHook(request)
            return caught.value.code(), caught.value.details() or ""

        ask.error = failing()
        assert await code(container_request()) == (grpc.StatusCode.UNKNOWN, str(ask.error))
        ask.error = KeyError("a defect")
        assert await code(container_request()) == (
            grpc.StatusCode.INTERNAL,
            "KeyError: 'a defect'",
        )
        ask.error = None
        status, text = await code(pb.ContainerResourceHookRequest())
        assert status is grpc.StatusCode.INVALID_ARGUMENT and text.startswith("pod_meta.uid: ")
        raw = channel.unary_unary(f"/{SERVICE}/PreCreateContainerHook")
        with pytest.raises(grpc.aio.AioRpcError):
            await raw(b"\xff\xff\xff")
        unknown = channel.unary_unary(f"/{SERVICE}/NoSuchHook")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await stub.PreCreateContainerHook(container_request())
        (calls,) = server.status().stages
        assert (calls.calls, calls.failed) == (4, 3)

    run(tmp_path, body)


def test_a_large_request(tmp_path: Path) -> None:
    async def body(ask: FakeAsk, server: HookServer, stub: Any, channel: Any) -> None:
        envs = {f"NAME_{n}": "x" * 1000 for n in range(6000)}
        options = [("grpc.max_receive_message_length", 16 << 20)]
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/hooks.sock", options) as wide:
            response = await RuntimeHookServiceStub(wide).PreCreateContainerHook(
                container_request(container_envs=envs)
            )
        assert dict(response.container_envs) == envs

    run(tmp_path, body)


def test_garbage_on_the_socket_hurts_nobody(tmp_path: Path) -> None:
    async def body(ask: FakeAsk, server: HookServer, stub: Any, channel: Any) -> None:
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "hooks.sock"))
        writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 64)
        await writer.drain()
        await stub.PreRunPodSandboxHook(sandbox_request())
        writer.close()
        assert ask.pods[0][1] is Stage.RUN_POD_SANDBOX

    run(tmp_path, body)


def test_the_socket_is_for_root_and_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "hooks.sock"

    async def whole() -> None:
        async with _serving(path) as (_, server):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert server.status().stages == ()
            with pytest.raises(SocketError, match="another koordlet"):
                await HookServer(FakeAsk(), str(path)).start()
        assert not path.exists()

    asyncio.run(whole())


def test_both_sockets_live_in_one_directory(tmp_path: Path) -> None:
    from koordlet.admin.server import AdminServer
    from tests.admin.fake_daemon import FakeDaemon

    async def whole() -> None:
        admin = AdminServer(FakeDaemon(), str(tmp_path / "koordlet.sock"))
        await admin.start()
        async with _serving(tmp_path / "hooks.sock"):
            pass
        await admin.stop()

    asyncio.run(whole())


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_members_of_roots_group_stay_out() -> None:
    program = (
        "import os, socket, sys; os.setgroups([0]); os.setgid(0); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    )

    async def whole(path: Path) -> None:
        async with _serving(path) as (_, server):
            path.chmod(0o666)
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, str(path), stdout=subprocess.PIPE
            )
            out, _ = await child.communicate()
            assert out.strip() in (b"b''", b"") and server.status().refused == {"credentials": 1}

    with tempfile.TemporaryDirectory(prefix="koordlet-test-") as directory:
        Path(directory).chmod(0o755)
        asyncio.run(whole(Path(directory) / "hooks.sock"))


def test_nothing_is_imported_before_a_proxy_connects(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from koordlet.hookserver.server import HookServer
async def main():
    server = HookServer(None, sys.argv[1])
    await server.start()
    print(sorted({"grpc", "google.protobuf"} & set(sys.modules)))
    await server.stop()
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "hooks.sock")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


def test_callers_that_say_nothing_shut_no_proxy_out(tmp_path: Path) -> None:
    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        async with _serving(path) as (ask, server):
            many = range(3 * MAX_CONNECTIONS)
            silent = [await asyncio.open_unix_connection(str(path)) for _ in many]
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                stub = RuntimeHookServiceStub(channel)
                await stub.PreRunPodSandboxHook(sandbox_request(), timeout=20)
            assert len(ask.pods) == 1
            assert server.connections <= MAX_CONNECTIONS
            assert server.status().refused["too-many"] > 2 * MAX_CONNECTIONS
            for _, writer in silent:
                writer.close()

    asyncio.run(whole())


def test_a_caller_that_says_nothing_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    path = tmp_path / "hooks.sock"

    async def whole() -> None:
        async with _serving(path):
            silent = socket.socket(socket.AF_UNIX)
            silent.connect(str(path))
            await asyncio.sleep(0)
        silent.close()

    asyncio.run(whole())
