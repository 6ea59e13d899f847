"""Unary calls on frames of our own, to servers of gRPC and to servers that misbehave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from hpack import Encoder

from koordlet.runtimeproxy import grpc_message
from koordlet.runtimeproxy.unary import CallError, Unary
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, make
from tests.runtimeproxy.rig import Runtime, Seen, in_loop, serve, serving, until

METHOD = "/a.B/C"
MIB = 1 << 20


def status(error: pytest.ExceptionInfo[CallError]) -> grpc.StatusCode:
    return next(code for code in grpc.StatusCode if code.value[0] == error.value.status)


@in_loop
async def test_messages_of_all_sizes_and_many_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    async with serving(runtime := Runtime(), path):
        unary = Unary(path, 17 * MIB)
        for size in (0, 1, 16_379, 16_380, 65_531, 200_000, 3 * MIB, 16 * MIB):
            body = os.urandom(size)
            assert await unary.call(METHOD, body, 10) == body
        bodies = [os.urandom(1 + number * 7919 % 300_000) for number in range(100)]
        assert await asyncio.gather(*(unary.call(METHOD, each, 20) for each in bodies)) == bodies
        remaining_s = runtime.seen[-1].remaining_s
        assert remaining_s is not None and 5 < remaining_s <= 20
        assert dict(runtime.seen[0].metadata)["user-agent"].startswith("koordlet/")
        unary.close()


@in_loop
async def test_a_status_comes_with_its_text(tmp_path: Path) -> None:
    async def answer(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await context.abort(grpc.StatusCode.NOT_FOUND, 'pod "ä%" is\nnot here')
        return []

    path = str(tmp_path / "s.sock")
    async with serving(Runtime(answer), path):
        unary = Unary(path, MIB)
        with pytest.raises(CallError) as caught:
            await unary.call(METHOD, b"x", 10)
        assert str(caught.value) == 'NOT_FOUND: pod "ä%" is\nnot here'
        unary.close()


@in_loop
async def test_whoever_gives_up_says_so(tmp_path: Path) -> None:
    async def forever(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await asyncio.sleep(3600)
        return []

    path = str(tmp_path / "s.sock")
    async with serving(runtime := Runtime(forever), path):
        unary = Unary(path, MIB)
        with pytest.raises(CallError) as caught:
            await unary.call(METHOD, b"x", 0.2)
        assert status(caught) is grpc.StatusCode.DEADLINE_EXCEEDED
        task = asyncio.ensure_future(unary.call(METHOD, b"y", 60))
        await until(lambda: len(runtime.seen) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: all(seen.cancelled for seen in runtime.seen))
        waiting = asyncio.ensure_future(unary.call(METHOD, b"z", 60))
        await until(lambda: len(runtime.seen) == 3)
        unary.close()
        with pytest.raises(CallError) as caught:
            await waiting
        assert status(caught) is grpc.StatusCode.UNAVAILABLE


@in_loop
async def test_an_answer_above_the_limit(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    async with serving(Runtime(), path):
        unary = Unary(path, 100_000)
        for _ in range(3):
            with pytest.raises(CallError) as caught:
                await unary.call(METHOD, bytes(3 * MIB), 10)
            assert status(caught) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await unary.call(METHOD, bytes(100_000), 10) == bytes(100_000)
        unary.close()


@in_loop
async def test_a_server_that_is_not_there_and_comes(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    unary = Unary(path, MIB)
    with pytest.raises(CallError) as caught:
        await unary.call(METHOD, b"x", 10)
    assert status(caught) is grpc.StatusCode.UNAVAILABLE
    assert "No such file" in str(caught.value)
    for _ in range(2):
        server = await serve(Runtime(), path)
        assert await unary.call(METHOD, b"x", 10) == b"x"
        await server.stop(None)
        await until(lambda: not unary.usable)
    unary.close()


Take = Callable[[Frame], list[bytes]]


async def raw(path: str, take: Callable[[], Take]) -> asyncio.Server:
    """A server that answers each frame with frames; ``take`` is made for each connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames_in, answer = FrameReader(from_client=True), take()
        while data := await reader.read(1 << 16):
            for frame in frames_in.feed(data):
                for each in answer(frame):
                    if each == b"":
                        writer.close()
                        return
                    writer.write(each)
        writer.close()

    return await asyncio.start_unix_server(talk, path)


def answered(stream: int, body: bytes = grpc_message.wrap(b"ok"), **trailers: str) -> list[bytes]:
    encoder = Encoder()
    encoder.header_table_size = 0
    first = encoder.encode([(":status", "200"), ("content-type", "application/grpc")])
    last = encoder.encode(list({"grpc-status": "0", **trailers}.items()))
    return [
        make(frames.HEADERS, frames.END_HEADERS, stream, first),
        make(frames.DATA, 0, stream, body),
        make(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, last),
    ]


@pytest.mark.parametrize("how", ["goaway", "refused"])
@in_loop
async def test_what_a_server_did_not_begin_is_asked_again(tmp_path: Path, how: str) -> None:
    asked: list[int] = []

    def connection() -> Take:
        def take(frame: Frame) -> list[bytes]:
            if frame.kind != frames.DATA:
                return []
            asked.append(frame.stream)
            if len(asked) > 1:
                return answered(frame.stream)
            if how == "goaway":
                return [frames.goaway(0, 0)]
            return [frames.rst_stream(frame.stream, frames.REFUSED_STREAM)]

        return take

    server = await raw(path := str(tmp_path / "s.sock"), connection)
    unary = Unary(path, MIB)
    assert await unary.call(METHOD, b"x", 10) == b"ok"
    assert asked == ([1, 1] if how == "goaway" else [1, 3])
    unary.close()
    server.close()


@in_loop
async def test_no_more_calls_at_a_time_than_the_server_takes(tmp_path: Path) -> None:
    running: list[int] = []
    most = 0

    def connection() -> Take:
        def take(frame: Frame) -> list[bytes]:
            nonlocal most
            if frame.kind == frames.CLIENT_PREFACE:
                return [frames.settings({frames.SETTING_MAX_CONCURRENT_STREAMS: 2})]
            if frame.kind == frames.HEADERS:
                running.append(frame.stream)
                most = max(most, len(running))
            if frame.kind == frames.PING and frame.flags & frames.ACK:
                return answered(running.pop(0)) if running else []
            if frame.kind == frames.DATA:
                return answered(running.pop(0))
            return []

        return take

    server = await raw(path := str(tmp_path / "s.sock"), connection)
    unary = Unary(path, MIB)
    assert await unary.call(METHOD, b"x", 10) == b"ok"
    most = 0
    found = await asyncio.gather(*(unary.call(METHOD, b"x", 10) for _ in range(30)))
    assert found == [b"ok"] * 30 and most <= 2
    unary.close()
    server.close()


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ([b""], "UNAVAILABLE", "closed the connection"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "UNAVAILABLE", "broke HTTP/2"),
        ([make(frames.DATA, 0, 1, bytes(20_000))], "UNAVAILABLE", "above 16384"),
        (answered(1, b"\x01" + bytes(4)), "INTERNAL", "one plain message"),
        (answered(1, b""), "INTERNAL", "one plain message"),
        (answered(1, **{"grpc-status": "x"}), "UNKNOWN", "no status"),
        ([make(frames.DATA, frames.END_STREAM, 1)], "INTERNAL", "without a status"),
        ([frames.rst_stream(1, frames.CANCEL)], "CANCELLED", "code 8"),
        ([frames.rst_stream(1, 2)], "INTERNAL", "code 2"),
    ],
    ids=["gone", "http1", "frame", "compressed", "empty", "status", "end", "cancel", "reset"],
)
@in_loop
async def test_odd_answers(tmp_path: Path, answer: list[bytes], code: str, text: str) -> None:
    def connection() -> Take:
        return lambda frame: answer if frame.kind == frames.DATA else []

    server = await raw(path := str(tmp_path / "s.sock"), connection)
    unary = Unary(path, MIB)
    with pytest.raises(CallError, match=text) as caught:
        await unary.call(METHOD, b"x", 10)
    assert status(caught).name == code
    unary.close()
    server.close()


@in_loop
async def test_a_ping_is_answered_later_and_at_once_when_the_server_leaves(tmp_path: Path) -> None:
    pongs: list[bytes] = []

    def connection() -> Take:
        def take(frame: Frame) -> list[bytes]:
            if frame.kind == frames.PING and frame.flags & frames.ACK:
                pongs.append(bytes(frame.raw[frames.HEAD_BYTES :]))
            if frame.kind == frames.DATA:
                ping = make(frames.PING, 0, 0, b"12345678")
                return [ping, *answered(frame.stream), frames.goaway(frame.stream, 0)]
            return []

        return take

    server = await raw(path := str(tmp_path / "s.sock"), connection)
    unary = Unary(path, MIB)
    assert await unary.call(METHOD, b"x", 10) == b"ok"
    await until(lambda: pongs == [b"12345678"])
    assert not unary.usable
    assert await unary.call(METHOD, b"x", 10) == b"ok"  # on another connection
    unary.close()
    server.close()
