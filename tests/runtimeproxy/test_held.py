"""Calls that stop in the proxy: changed, refused, cancelled, within the windows of both sides."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordlet.runtimeproxy.contract import Answer, Question, Refusal
from koordlet.runtimeproxy.servers.questions import InTask
from tests.runtimeproxy.rig import RUNTIME, Seen, in_loop, rig, serve, until

HELD = f"{RUNTIME}CreateContainer"
FREE = f"{RUNTIME}ExecSync"


@dataclass
class FakeCall:
    question: Coroutine[Any, Any, Answer] | None
    ends: list[tuple[int | None, bytes | None]]

    def ask(self) -> Question | None:
        return None if self.question is None else InTask(self.question)

    def ended(self, status: int | None, response: bytes | None) -> None:
        self.ends.append((status, response))

    def close(self) -> None:
        pass


@dataclass
class Fake:
    """Holds every call of HELD; ``think`` gives the answer, None: at once and unchanged."""

    think: Callable[[bytes], Coroutine[Any, Any, Answer]] | None = None
    messages: list[bytes] = field(default_factory=list)
    ends: list[tuple[int | None, bytes | None]] = field(default_factory=list)

    def wants(self, path: str) -> bool:
        return path == HELD

    def begin(self, path: str, message: bytes) -> FakeCall:
        self.messages.append(message)
        return FakeCall(None if self.think is None else self.think(message), self.ends)


@in_loop
async def test_unchanged_passes_byte_for_byte(tmp_path: Path) -> None:
    fake = Fake()
    async with rig(tmp_path, fake) as place:
        for size in (0, 1, 16_384, 65_531, 200_000, 3 << 20):
            body = os.urandom(size)
            assert await place.call(HELD, body) == body
            assert fake.messages[-1] == body
        await until(lambda: len(fake.ends) == 6)
        assert all(status == 0 for status, _ in fake.ends)
        assert fake.ends[1][1] == fake.messages[1]
        assert fake.ends[-1][1] is None  # too large to be worth keeping


@in_loop
async def test_a_change_goes_to_the_runtime(tmp_path: Path) -> None:
    async def think(message: bytes) -> Answer:
        await asyncio.sleep(0.01)
        return message * 3

    fake = Fake(think)
    async with rig(tmp_path, fake) as place:
        for size in (10, 100_000, 5 << 20):
            body = os.urandom(size)
            assert await place.call(HELD, body) == body * 3


@in_loop
async def test_a_refusal_ends_the_call_and_nothing_else(tmp_path: Path) -> None:
    async def think(message: bytes) -> Answer:
        return Refusal(2, "hook server err: 100 % ä\n") if message == b"no" else None

    fake = Fake(think)
    async with rig(tmp_path, fake) as place:
        for _ in range(300):  # more than what is remembered of refused streams
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await place.call(HELD, b"no")
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            assert caught.value.details() == "hook server err: 100 % ä\n"
        assert await place.call(HELD, b"yes") == b"yes"
        assert await place.call(FREE, b"free") == b"free"
        assert not [seen for seen in place.runtime.of("CreateContainer") if b"no" in seen.requests]
        assert [status for status, _ in fake.ends] == [0]  # refused ones never reached the runtime
        assert not place.meter.faults


@in_loop
async def test_a_held_call_does_not_stop_others(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def think(message: bytes) -> Answer:
        await gate.wait()
        return message + b"!"

    async with rig(tmp_path, Fake(think)) as place:
        large = os.urandom(1 << 20)
        waiting = [asyncio.ensure_future(place.call(HELD, large)) for _ in range(8)]
        for _ in range(20):
            assert await place.call(FREE, large) == large
        assert not any(task.done() for task in waiting)
        gate.set()
        assert await asyncio.gather(*waiting) == [large + b"!"] * 8


@in_loop
async def test_a_cancelled_call_stops_its_hook(tmp_path: Path) -> None:
    stopped: list[bytes] = []

    async def think(message: bytes) -> Answer:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(message)
            raise
        return None

    async with rig(tmp_path, fake := Fake(think)) as place:
        call = place.client.unary_unary(HELD)(b"first")
        late = place.client.unary_unary(HELD)(b"second", timeout=0.2)
        await until(lambda: len(fake.messages) == 2)
        call.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await late
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: sorted(stopped) == [b"first", b"second"])
        assert fake.ends == []
        assert await place.call(FREE, b"x") == b"x"


@in_loop
async def test_a_fault_in_understanding_lets_the_call_pass(tmp_path: Path) -> None:
    async def think(message: bytes) -> Answer:
        raise RuntimeError("a defect")

    async with rig(tmp_path, Fake(think)) as place:
        assert await place.call(HELD, b"as it came") == b"as it came"


@in_loop
async def test_a_request_above_the_limit_of_cri_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path, fake := Fake()) as place:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await place.call(HELD, bytes((16 << 20) + 1))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert fake.messages == []
        largest = bytes(16 << 20)
        assert len(await place.call(HELD, largest)) == len(largest)


@in_loop
async def test_a_runtime_that_answers_before_the_request_is_whole(tmp_path: Path) -> None:
    """The hook is still thinking when the runtime ends the call."""

    class Hasty(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            return None  # Unimplemented, whatever is asked

    async def think(message: bytes) -> Answer:
        await asyncio.sleep(3600)
        return None

    async with rig(tmp_path, fake := Fake(think)) as place:
        await place.server.stop(None)
        place.server = await serve(Hasty(), place.runtime_path)
        held = asyncio.ensure_future(place.call(HELD, bytes(200_000), wait_for_ready=True))
        await until(lambda: fake.messages)
        # The headers of a held call wait for the next frame to the runtime, which is of this one.
        for call in (place.call(FREE), held):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert fake.ends == []


@in_loop
async def test_many_held_and_free_calls_under_pressure(tmp_path: Path) -> None:
    """All share one connection whose windows are far smaller than what is under way."""

    async def think(message: bytes) -> Answer:
        await asyncio.sleep(len(message) % 7 / 1000)
        return message[:-1] if len(message) % 2 else None

    async def slowly(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await asyncio.sleep(0.001)
        return seen.requests

    async with rig(tmp_path, Fake(think)) as place:
        place.runtime.answer = slowly
        bodies = [os.urandom(1 + number * 7919 % 300_000) for number in range(120)]
        held = [place.call(HELD, body) for body in bodies]
        free = [place.call(FREE, body) for body in bodies]
        found = await asyncio.gather(*held, *free)
        wanted = [body[:-1] if len(body) % 2 else body for body in bodies]
        assert found == [*wanted, *bodies]
        assert not place.meter.faults
