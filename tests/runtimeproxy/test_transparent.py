"""Where no hook acts the proxy cannot be told from the runtime."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import grpc
import pytest

from koordlet.wire.pb import cri_pb2
from tests.runtimeproxy.rig import IMAGES, RUNTIME, Seen, in_loop, rig, serve, until

METHODS = [
    f"/{service.full_name}/{method.name}"
    for service in cri_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
UNKNOWN = [f"{RUNTIME}NotYetInvented", "/runtime.v1alpha2.RuntimeService/Version", "/a.B/C"]
STREAMS = [
    f"/{service.full_name}/{method.name}"
    for service in cri_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.server_streaming
]


def test_all_of_cri_is_here() -> None:
    assert len(METHODS) > 40
    assert len(STREAMS) == 7


@in_loop
async def test_every_method_is_passed_with_its_metadata(tmp_path: Path) -> None:
    request = os.urandom(300)
    sent = (("x-text", "ä b".encode().hex()), ("x-bytes-bin", b"\0\xff\x01"), ("x-text", "twice"))

    async def answer(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await context.send_initial_metadata((("x-head", "1"), ("x-head-bin", b"\0\1")))
        context.set_trailing_metadata((("x-tail-bin", b"\xfe"), ("x-tail", seen.path)))
        return [*seen.requests, seen.path.encode()]

    async with rig(tmp_path) as place:
        place.runtime.answer = answer
        for path in METHODS + UNKNOWN:
            found = []
            for channel in (place.direct, place.client):
                call = channel.unary_stream(path)(request, metadata=sent)
                messages = [message async for message in call]
                head, tail = await call.initial_metadata(), await call.trailing_metadata()
                found.append((messages, head, tail, await call.code()))
            direct, proxied = found
            assert direct == proxied
            assert proxied[0] == [request, path.encode()]
            seen = place.runtime.seen[-2:]
            assert seen[0] == seen[1]
            assert seen[1].requests == [request]
            # The servers of gRPC put values of the same name side by side.
            arrived = [pair for pair in seen[1].metadata if pair[0].startswith("x-")]
            assert sorted(map(repr, arrived)) == sorted(map(repr, sent))
        assert {path for path, _ in place.meter.calls} == set(METHODS + UNKNOWN)
        assert not place.meter.faults


@in_loop
async def test_status_with_text_and_details(tmp_path: Path) -> None:
    async def answer(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05\x12\x03abc"),))
        await context.abort(grpc.StatusCode.NOT_FOUND, 'pod "ä%" is\nnot here')
        return []

    async with rig(tmp_path) as place:
        place.runtime.answer = answer
        for channel in (place.direct, place.client):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"{RUNTIME}PodSandboxStatus")(b"x")
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            assert caught.value.details() == 'pod "ä%" is\nnot here'
            details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
            assert details == b"\x08\x05\x12\x03abc"
        assert place.meter.ends == [(f"{RUNTIME}PodSandboxStatus", 5)]


@in_loop
async def test_deadlines_arrive_and_none_stays_none(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        await place.call(f"{IMAGES}PullImage", b"x")
        await place.call(f"{RUNTIME}Version", b"x", timeout=7.5)
        without, with_one = place.runtime.seen
        assert without.remaining_s is None
        assert with_one.remaining_s is not None and 5 < with_one.remaining_s < 8


@in_loop
async def test_a_cancelled_call_is_cancelled_at_the_runtime(tmp_path: Path) -> None:
    async def forever(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await asyncio.sleep(3600)
        return []

    async with rig(tmp_path) as place:
        place.runtime.answer = forever
        call = place.client.unary_unary(f"{RUNTIME}ExecSync")(b"x")
        late = place.client.unary_unary(f"{RUNTIME}ExecSync")(b"x", timeout=0.2)
        await until(lambda: len(place.runtime.seen) == 2)
        call.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await late
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: all(seen.cancelled for seen in place.runtime.seen))


@in_loop
async def test_events_come_one_by_one(tmp_path: Path) -> None:
    """A stream that stays open hands on each message when it comes (GetContainerEvents)."""
    steps: asyncio.Queue[bytes] = asyncio.Queue()

    class Events(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            async def serve(request: bytes, context: grpc.aio.ServicerContext) -> object:
                while message := await steps.get():
                    yield message

            return grpc.unary_stream_rpc_method_handler(serve)

    async with rig(tmp_path) as place:
        await place.server.stop(None)
        place.server = await serve(Events(), place.runtime_path)
        call = place.client.unary_stream(f"{RUNTIME}GetContainerEvents")(b"")
        for message in (b"created", b"started", b"stopped"):
            await steps.put(message)
            assert await call.read() == message
        await steps.put(b"")
        assert await call.read() is grpc.aio.EOF


@in_loop
async def test_streams_of_both_sides_and_large_messages(tmp_path: Path) -> None:
    large = os.urandom((16 << 20) - 64)
    async with rig(tmp_path) as place:
        assert await place.call(f"{RUNTIME}ListContainers", large) == large
        messages = [bytes([number]) * 70_000 for number in range(40)]
        call = place.client.stream_stream("/a.B/Both")(iter(messages))
        assert [message async for message in call] == messages


@in_loop
async def test_many_calls_at_a_time(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        bodies = [os.urandom(size) for size in [0, 1, 100, 5_000, 70_000, 300_000] * 25]
        calls = [place.call(f"{RUNTIME}Status", body) for body in bodies]
        assert await asyncio.gather(*calls) == bodies
        assert len(place.meter.ends) == len(bodies)


@in_loop
async def test_what_is_no_http2_ends_that_connection_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        await place.call(f"{RUNTIME}Version")
        reader, writer = await asyncio.open_unix_connection(place.proxy_path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"does not speak HTTP/2" in await reader.read()
        writer.close()
        assert await place.call(f"{RUNTIME}Version", b"still") == b"still"
        assert len(place.meter.faults) == 1
