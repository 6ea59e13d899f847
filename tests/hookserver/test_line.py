"""Koordlet's own line: the same answers as on gRPC, on the same socket, for the same callers."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.answer import Combined, EnvVar
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.hookserver.answers import SANDBOX_STAGES, Answers
from koordlet.hookserver.requested import Requested
from koordlet.hookserver.server import HookServer
from koordlet.hookserver.service import METHODS
from koordlet.wire import hook_line
from koordlet.wire.pb import hook_pb2 as pb
from koordlet.wire.pb.hook_pb2_grpc import RuntimeHookServiceStub

from .fakes import WHY, FakeAsk, container_request, failing, resources, sandbox_request, wanted

OK, UNKNOWN, INVALID, INTERNAL = 0, 2, 3, 13


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> tuple[int, int, bytes]:
        head = await self.reader.readexactly(hook_line.HEAD.size)
        length, number, status = hook_line.HEAD.unpack(head)
        return number, status, await self.reader.readexactly(length)

    async def ask(self, stage: Stage, request: Any, number: int = 1) -> tuple[int, bytes]:
        code = hook_line.HOOKS.index(str(stage))
        self.writer.write(hook_line.frame(number, code, request.SerializeToString()))
        found, status, payload = await self.receive()
        assert found == number
        return status, payload


async def connect(path: Path) -> Caller:
    caller = Caller(*await asyncio.open_unix_connection(str(path)))
    caller.writer.write(hook_line.GREETING)
    assert await caller.reader.readexactly(len(hook_line.GREETING)) == hook_line.GREETING
    return caller


@asynccontextmanager
async def serving(path: Path, ask: FakeAsk) -> AsyncIterator[HookServer]:
    server = HookServer(ask, str(path))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_the_hooks_are_those_of_the_api() -> None:
    assert set(hook_line.HOOKS) == {str(stage) for stage in METHODS.values()}
    assert len(hook_line.GREETING) == len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


def test_every_hook_is_answered_on_both_ways_at_once(tmp_path: Path) -> None:
    ask = FakeAsk()
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))

    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        async with (
            serving(path, ask) as server,
            grpc.aio.insecure_channel(f"unix:{path}") as channel,
        ):
            caller, stub = await connect(path), RuntimeHookServiceStub(channel)
            for stage in METHODS.values():
                sandbox = stage in SANDBOX_STAGES
                request = sandbox_request() if sandbox else container_request()
                status, payload = await caller.ask(stage, request)
                assert status == OK
                kind = pb.PodSandboxHookResponse if sandbox else pb.ContainerResourceHookResponse
                changed = kind.FromString(payload)
                if stage is Stage.UPDATE_POD:  # no method of the hook API
                    continue
                response = await getattr(stub, f"{stage}Hook")(request)
                field = "resources" if sandbox else "container_resources"
                assert getattr(changed, field) == getattr(response, field)
                if not sandbox:
                    assert not changed.container_annotations and not changed.container_envs
            counts = {calls.stage: calls.calls for calls in server.status().stages}
            assert counts == dict.fromkeys(METHODS.values(), 2) | {Stage.UPDATE_POD: 1}
            caller.writer.close()

    asyncio.run(whole())


def test_what_is_not_changed_is_not_said(tmp_path: Path) -> None:
    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        ask = FakeAsk()
        async with serving(path, ask) as server:
            caller = await connect(path)
            assert await caller.ask(Stage.CREATE_CONTAINER, container_request()) == (OK, b"")
            same = {Resource.CPU_SHARES: resources().cpu_shares}
            ask.answer = Combined(
                settings=wanted(same), env=(EnvVar("B", "2", WHY), EnvVar("GPU", "0", WHY))
            )
            _, payload = await caller.ask(Stage.CREATE_CONTAINER, container_request())
            found = pb.ContainerResourceHookResponse.FromString(payload)
            assert dict(found.container_envs) == {"GPU": "0"}
            assert not found.HasField("container_resources")
            (calls,) = server.status().stages
            assert (calls.calls, calls.changed) == (2, 1)
            caller.writer.close()

    asyncio.run(whole())


values = st.fixed_dictionaries(
    {},
    optional={
        Resource.CPU_SHARES: st.sampled_from([2, 512, 1024]),
        Resource.CPU_QUOTA_US: st.sampled_from([-1, 50_000, 9_000]),
        Resource.CPUSET_CPUS: st.sampled_from(["", "0-3", "2"]),
        Resource.MEMORY_LIMIT: st.sampled_from([1 << 28, 1 << 30]),
        Resource.OOM_SCORE_ADJ: st.sampled_from([0, 900, -5]),
    },
)
envs = st.dictionaries(st.sampled_from("ABC"), st.sampled_from(["", "2", "x"]), max_size=3)


@given(values, envs, st.booleans())
def test_both_ways_say_the_same(given_values: Any, given_envs: Any, with_resources: bool) -> None:
    """What the line leaves out is what the request has."""
    ask = FakeAsk()
    variables = tuple(EnvVar(name, value, WHY) for name, value in given_envs.items())
    ask.answer = Combined(settings=wanted(given_values), env=variables)
    request = container_request() if with_resources else container_request(container_resources=None)
    stage = Stage.CREATE_CONTAINER
    whole, short = (
        Answers(ask, "containerd", requested=Requested()).answer(stage, request, whole=each)
        for each in (True, False)
    )
    envs_of_both = {**request.container_envs, **short.container_envs}
    assert envs_of_both == dict(whole.container_envs)
    said = short.HasField("container_resources")
    wanted_resources = short.container_resources if said else request.container_resources
    assert whole.container_resources == wanted_resources
    assert whole.container_annotations == request.container_annotations
    assert whole.pod_cgroup_parent == request.pod_cgroup_parent


def test_failures_have_a_status_and_a_text(tmp_path: Path) -> None:
    async def whole() -> None:
        path, ask, stage = tmp_path / "hooks.sock", FakeAsk(), Stage.CREATE_CONTAINER
        async with serving(path, ask) as server:
            caller = await connect(path)
            ask.error = failing()
            assert await caller.ask(stage, container_request()) == (
                UNKNOWN,
                str(ask.error).encode(),
            )
            ask.error = KeyError("a defect")
            assert await caller.ask(stage, container_request()) == (
                INTERNAL,
                b"KeyError: 'a defect'",
            )
            ask.error = None
            status, text = await caller.ask(stage, pb.ContainerResourceHookRequest())
            assert status == INVALID and text.startswith(b"pod_meta.uid: ")
            caller.writer.write(hook_line.frame(7, 2, b"\xff\xff") + hook_line.frame(8, 99, b""))
            assert (await caller.receive())[:2] == (7, INVALID)
            assert (await caller.receive())[:2] == (8, INVALID)
            assert await caller.ask(stage, container_request()) == (OK, b"")
            (calls,) = server.status().stages
            assert (calls.calls, calls.failed) == (4, 3)
            caller.writer.close()

    asyncio.run(whole())


def test_many_calls_on_one_line_and_a_large_one(tmp_path: Path) -> None:
    async def whole() -> None:
        path, ask = tmp_path / "hooks.sock", FakeAsk()
        ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))
        async with serving(path, ask):
            caller = await connect(path)
            large = container_request(container_envs={f"N{n}": "x" * 1000 for n in range(6000)})
            raw = [large.SerializeToString(), *[container_request().SerializeToString()] * 50]
            sent = b"".join(hook_line.frame(n, 2, each) for n, each in enumerate(raw))
            for at in range(0, len(sent), 50_000):
                caller.writer.write(sent[at : at + 50_000])
                await caller.writer.drain()
            found = [await caller.receive() for _ in raw]
            assert [number for number, _, _ in found] == list(range(51))
            assert all(status == OK for _, status, _ in found)
            caller.writer.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "raw",
    [struct.pack(">LLB", (16 << 20) + 1, 1, 2), struct.pack(">LLB", 2**32 - 1, 1, 2) + bytes(99)],
)
def test_a_frame_above_the_limit_ends_its_line_alone(tmp_path: Path, raw: bytes) -> None:
    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        async with serving(path, FakeAsk()):
            caller, other = await connect(path), await connect(path)
            caller.writer.write(raw)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await caller.receive()
            assert (await other.ask(Stage.CREATE_CONTAINER, container_request()))[0] == OK
            other.writer.close()

    asyncio.run(whole())


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_the_line_is_for_root_alone() -> None:
    import tempfile

    program = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(b'koordlet hook line 1\\r\\n\\r\\n'); print(s.recv(24))"
    )

    async def whole(path: Path) -> None:
        async with serving(path, FakeAsk()) as server:
            path.chmod(0o666)
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", program, str(path)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            out, _ = await child.communicate()
            assert b"koordlet" not in out and server.status().refused == {"credentials": 1}

    with tempfile.TemporaryDirectory(prefix="koordlet-test-") as directory:
        Path(directory).chmod(0o755)
        asyncio.run(whole(Path(directory) / "hooks.sock"))


def test_a_caller_that_stays_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async def whole() -> None:
        path = tmp_path / "hooks.sock"
        async with serving(path, FakeAsk()):
            caller = await connect(path)
            half = socket.socket(socket.AF_UNIX)
            half.connect(str(path))
            half.sendall(hook_line.GREETING[:5])
            await asyncio.sleep(0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.receive()
        half.close()

    asyncio.run(whole())


def test_the_line_needs_no_grpc(tmp_path: Path) -> None:
    program = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from koordlet.hookserver.server import HookServer
from koordlet.wire import hook_line
async def main():
    server = HookServer(None, sys.argv[1])
    await server.start()
    reader, writer = await asyncio.open_unix_connection(sys.argv[1])
    writer.write(hook_line.GREETING)
    await reader.readexactly(len(hook_line.GREETING))
    print(sorted({"grpc"} & set(sys.modules)))
    writer.close()
    await server.stop()
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "hooks.sock"), os.getcwd()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
