"""What gRPC's own clients do not send but HTTP/2 allows, and what it does not allow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from hpack import Encoder

from koordlet.runtimeproxy import grpc_message
from koordlet.runtimeproxy.http2.headers import HeaderReader, status_of
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, data_of, make
from tests.runtimeproxy.rig import RUNTIME, Rig, Seen, in_loop, rig, until
from tests.runtimeproxy.test_held import FREE, HELD, Fake


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    encoder: Encoder = field(default_factory=Encoder)
    frames_in: FrameReader = field(default_factory=lambda: FrameReader(from_client=False))
    headers: HeaderReader = field(default_factory=HeaderReader)
    body: dict[int, bytes] = field(default_factory=dict)
    status: dict[int, int | None] = field(default_factory=dict)
    credit: dict[int, int] = field(default_factory=dict)
    resets: dict[int, int] = field(default_factory=dict)
    settings: dict[int, int] = field(default_factory=dict)
    goaway: bytes = b""
    goaways: list[int] = field(default_factory=list)
    pings: list[bytes] = field(default_factory=list)

    def block(self, path: str) -> bytes:
        pairs = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"))
        encoded: bytes = self.encoder.encode(
            [*pairs, ("te", "trailers"), ("content-type", "application/grpc")]
        )
        return encoded

    def send(self, *raw: bytes) -> None:
        self.writer.write(b"".join(raw))

    async def until_ended(self, *streams: int) -> None:
        await self.until(lambda: self.status.keys() >= set(streams))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            part = await self.reader.read(1 << 16)
            assert part, f"closed: {self.goaway!r}"
            for frame in self.frames_in.feed(part):
                self._take(frame)

    def call(self, stream: int, path: str, message: bytes) -> None:
        self.send(
            make(frames.HEADERS, frames.END_HEADERS, stream, self.block(path)),
            make(frames.DATA, frames.END_STREAM, stream, grpc_message.wrap(message)),
        )

    async def until_closed(self) -> bytes:
        while part := await self.reader.read(1 << 16):
            for frame in self.frames_in.feed(part):
                self._take(frame)
        return self.goaway

    def _take(self, frame: Frame) -> None:
        number = frame.stream
        if frame.kind == frames.HEADERS:
            found = self.headers.read(frame)
            if frame.flags & frames.END_STREAM:
                self.status[number] = status_of(found)
        elif frame.kind == frames.DATA:
            self.body[number] = self.body.get(number, b"") + data_of(frame)
            size = len(frame.raw) - frames.HEAD_BYTES
            if size:
                self.send(frames.window_update(0, size), frames.window_update(number, size))
        elif frame.kind == frames.WINDOW_UPDATE:
            self.credit[number] = self.credit.get(number, 0) + frames.increment_of(frame)
        elif frame.kind == frames.RST_STREAM:
            self.resets[number] = int.from_bytes(frame.raw[frames.HEAD_BYTES :])
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            self.settings |= dict(frames.settings_of(frame))
            self.send(make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK:
            self.pings.append(bytes(frame.raw[frames.HEAD_BYTES :]))
        elif frame.kind == frames.GOAWAY:
            self.goaway = bytes(frame.raw)
            self.goaways.append(frames.last_stream_of(frame))


async def connected(place: Rig) -> Client:
    client = Client(*await asyncio.open_unix_connection(place.proxy_path))
    client.send(frames.PREFACE, make(frames.SETTINGS, 0, 0))
    return client


def data(payload: bytes, *, padding: int, flags: int = 0) -> bytes:
    """On stream 1."""
    if not padding:
        return make(frames.DATA, flags, 1, payload)
    content = bytes([padding]) + payload + bytes(padding)
    return make(frames.DATA, flags | frames.PADDED, 1, content)


# gRPC's C core, which is the runtime here, takes no padding.
@pytest.mark.parametrize(("path", "padding"), [(HELD, 100), (FREE, 0)])
@in_loop
async def test_padding_priority_and_continuation(tmp_path: Path, path: str, padding: int) -> None:
    message = os.urandom(50_000)
    body = grpc_message.wrap(message)
    async with rig(tmp_path, Fake()) as place:
        client = await connected(place)
        block = client.block(path)
        priority = bytes(4) + b"\x10"
        client.send(
            make(frames.HEADERS, frames.HAS_PRIORITY, 1, priority + block[:3]),
            make(frames.CONTINUATION, 0, 1, block[3:5]),
            make(frames.CONTINUATION, frames.END_HEADERS, 1, block[5:]),
            *(data(body[at : at + 7_000], padding=padding) for at in range(0, len(body), 7_000)),
            make(frames.PRIORITY, 0, 1, priority),
            data(b"", padding=padding, flags=frames.END_STREAM),
        )
        await client.until_ended(1)
        assert client.status == {1: 0}
        assert client.body[1] == body
        assert place.runtime.seen[0].requests == [message]
        # The next block refers to the tables that both ends kept in step.
        client.send(
            make(frames.HEADERS, frames.END_HEADERS, 3, client.block(path)),
            make(frames.DATA, frames.END_STREAM, 3, grpc_message.wrap(b"x")),
        )
        await client.until_ended(3)
        assert client.body[3] == grpc_message.wrap(b"x")
        client.writer.close()


@in_loop
async def test_all_credit_comes_back(tmp_path: Path) -> None:
    """After much held traffic the client may send as much as at the beginning."""
    async with rig(tmp_path, Fake()) as place:
        client = await connected(place)
        sent = 0
        for number in range(1, 61, 2):
            body = grpc_message.wrap(os.urandom(9_000))
            sent += len(body)
            client.send(
                make(frames.HEADERS, frames.END_HEADERS, number, client.block(HELD)),
                make(frames.DATA, frames.END_STREAM, number, body),
            )
            await client.until_ended(number)
        assert sent - client.credit[0] < frames.DEFAULT_WINDOW_BYTES
        client.writer.close()


@in_loop
async def test_anything_but_one_plain_message_is_refused(tmp_path: Path) -> None:
    """A runtime would run the first of two, and read a compressed one, without the hooks."""
    one = grpc_message.wrap(b"a")
    bodies = [one * 2, b"\x01" + one[1:], one + b"\0\0", b"\0\0", b""]
    async with rig(tmp_path, fake := Fake()) as place:
        client = await connected(place)
        for number, body in zip(range(1, 11, 2), bodies, strict=True):
            client.send(
                make(frames.HEADERS, frames.END_HEADERS, number, client.block(HELD)),
                make(frames.DATA, frames.END_STREAM, number, body),
            )
        flags = frames.END_HEADERS | frames.END_STREAM
        client.send(make(frames.HEADERS, flags, 11, client.block(HELD)))
        await client.until_ended(*range(1, 13, 2))
        assert client.status == {1: 13, 3: 12, 5: 13, 7: 13, 9: 13, 11: 13}
        assert fake.messages == []
        assert not [seen for seen in place.runtime.seen if seen.requests]
        client.send(  # the connection goes on
            make(frames.HEADERS, frames.END_HEADERS, 13, client.block(HELD)),
            make(frames.DATA, frames.END_STREAM, 13, one),
        )
        await client.until_ended(13)
        assert client.status[13] == 0
        client.writer.close()


@pytest.mark.parametrize("path", [HELD, FREE])
@in_loop
async def test_data_after_the_end_of_a_request(tmp_path: Path, path: str) -> None:
    """Ends its stream and nothing else (RFC 9113 section 5.1)."""
    thinking = asyncio.Event()

    async def think(message: bytes) -> bytes | None:
        if message == b"wait":
            thinking.set()
            await asyncio.sleep(3600)
        return None

    async def answer(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        if seen.requests == [b"wait"]:
            thinking.set()
            await asyncio.sleep(3600)
        return seen.requests

    async with rig(tmp_path, fake := Fake(think)) as place:
        place.runtime.answer = answer
        client = await connected(place)
        more = make(frames.DATA, frames.END_STREAM, 1, grpc_message.wrap(b"more"))
        client.send(
            make(frames.HEADERS, frames.END_HEADERS, 1, client.block(path)),
            make(frames.DATA, frames.END_STREAM, 1, grpc_message.wrap(b"wait")),
        )
        await asyncio.wait_for(thinking.wait(), 10)
        client.send(more, more)
        client.send(
            make(frames.HEADERS, frames.END_HEADERS, 3, client.block(path)),
            make(frames.DATA, frames.END_STREAM, 3, grpc_message.wrap(b"next")),
        )
        await client.until_ended(3)
        assert client.resets == {1: frames.STREAM_CLOSED}
        assert client.status[3] == 0
        assert [seen.requests for seen in place.runtime.seen if seen.requests == [b"more"]] == []
        assert len(fake.messages) == (2 if path == HELD else 0)
        if path == FREE:
            await until(lambda: place.runtime.seen[0].cancelled)
        client.writer.close()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (make(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x0f"), b"header block"),
        (make(frames.DATA, frames.PADDED, 1, b"\x09x"), b"padding"),
        (make(frames.HEADERS, 0, 3) + make(frames.PING, 0, 0, bytes(8)), b"inside a header block"),
        (make(frames.SETTINGS, 0, 0, b"12345"), b"multiple of 6"),
        (make(frames.HEADERS, 5, 1, b"\x88"), b"DATA waits"),
        (make(frames.DATA, 0, 5, b"x"), b"never opened"),
        (make(frames.DATA, 0, 0, b"x"), b"never opened"),
        (make(frames.HEADERS, 4, 4, b"\x84"), b"even number"),
        (make(frames.HEADERS, 4, 3, b"\x88"), b"does not begin with /"),
        (make(frames.SETTINGS, 0, 0, bytes(6) * 65), b"more than 64 settings"),
        (make(frames.DATA, 0, 1, bytes(16_385)), b"above 16384 bytes"),
    ],
    ids=[
        *("hpack", "padding", "block", "settings", "trailers", "idle", "zero", "even", "path"),
        *("many settings", "frame size"),
    ],
)
@in_loop
async def test_a_fault_ends_its_connection_alone(tmp_path: Path, raw: bytes, text: bytes) -> None:
    async with rig(tmp_path, Fake()) as place:
        client = await connected(place)
        client.send(make(frames.HEADERS, frames.END_HEADERS, 1, client.block(HELD)), raw)
        assert text in await client.until_closed()
        assert await place.call(f"{RUNTIME}Version", b"x") == b"x"
        assert len(place.meter.faults) == 1
        client.writer.close()
