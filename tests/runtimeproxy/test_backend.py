"""The runtime is away, comes back, dies in the middle of calls."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import grpc
import pytest

from tests.runtimeproxy.rig import RUNTIME, Seen, channel, echo, in_loop, rig, serve, until

VERSION = f"{RUNTIME}Version"


@in_loop
async def test_a_missing_runtime_is_unavailable_at_once_and_back_by_itself(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        await place.server.stop(None)
        Path(place.runtime_path).unlink(missing_ok=True)
        async with channel(place.proxy_path) as client:
            call = client.unary_unary(VERSION)
            for size in (0, 10, 500_000):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(bytes(size), timeout=20)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
                assert place.runtime_path in (caught.value.details() or "")
                assert "No such file" in (caught.value.details() or "")
            assert (VERSION, 14) in place.meter.ends
            place.server = await serve(place.runtime, place.runtime_path)
            await until(lambda: not place.backend.error)
            assert await call(b"back", wait_for_ready=True, timeout=10) == b"back"


@in_loop
async def test_calls_end_when_the_runtime_dies(tmp_path: Path) -> None:
    async def forever(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await context.send_initial_metadata((("x-begun", "1"),))
        await asyncio.sleep(3600)
        return []

    async with rig(tmp_path) as place:
        place.runtime.answer = forever
        calls = [asyncio.ensure_future(place.call(VERSION, b"x")) for _ in range(3)]
        await until(lambda: len(place.runtime.seen) == 3)
        for link in tuple(place.front._links):
            assert link.backend.transport is not None
            link.backend.transport.abort()
        for found in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(found, grpc.aio.AioRpcError)
            assert found.code() is grpc.StatusCode.UNAVAILABLE
            assert "has closed the connection" in (found.details() or "")
        place.runtime.answer = echo
        assert await place.call(VERSION, b"again", wait_for_ready=True) == b"again"


@in_loop
async def test_a_runtime_that_restarts_again_and_again(tmp_path: Path) -> None:
    ok = failed = 0
    async with rig(tmp_path) as place:
        for _ in range(5):
            await place.server.stop(None)
            for _ in range(5):
                try:
                    await place.call(VERSION, b"x", timeout=5)
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.UNAVAILABLE
                    failed += 1
            place.server = await serve(place.runtime, place.runtime_path)
            await until(lambda: not place.backend.error)
            for number in range(5):
                body = os.urandom(number * 50_000)
                assert await place.call(VERSION, body, wait_for_ready=True, timeout=10) == body
                ok += 1
    assert (ok, failed) == (25, 25)


@in_loop
async def test_a_client_that_goes_away_ends_its_calls(tmp_path: Path) -> None:
    async def forever(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await asyncio.sleep(3600)
        return []

    async with rig(tmp_path) as place:
        place.runtime.answer = forever
        script = (
            "import grpc, sys\n"
            "channel = grpc.insecure_channel(f'unix://{sys.argv[1]}')\n"
            "channel.unary_unary(sys.argv[2])(b'x')\n"
        )
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, place.proxy_path, VERSION
        )
        await until(lambda: len(place.runtime.seen) == 1)
        assert place.front.clients == 1
        client.kill()
        await client.wait()
        await until(lambda: place.runtime.seen[0].cancelled and not place.front.clients)


@in_loop
async def test_draining_lets_calls_end_and_sends_the_next_elsewhere(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await gate.wait()
        return seen.requests

    async with rig(tmp_path) as place:
        place.runtime.answer = wait
        running = asyncio.ensure_future(place.call(VERSION, b"runs"))
        await until(lambda: len(place.runtime.seen) == 1)
        began = time.monotonic()
        draining = asyncio.ensure_future(place.front.drain(20))
        await asyncio.sleep(0.1)
        assert not draining.done()
        gate.set()
        assert await running == b"runs"
        await draining
        assert time.monotonic() - began < 15
        assert await place.call(VERSION, b"next", wait_for_ready=True) == b"next"


@in_loop
async def test_a_client_that_does_not_read_stops_the_flow_and_nothing_else(tmp_path: Path) -> None:
    """What waits for it is bounded by its own windows and by the buffers of sockets."""
    async with rig(tmp_path) as place:
        call = place.client.stream_stream("/a.B/Both")(iter([bytes(1 << 20)] * 40))
        await asyncio.sleep(0.3)
        assert await place.call(VERSION, b"x") == b"x"
        total = 0
        async for message in call:
            total += len(message)
        assert total == 40 << 20
