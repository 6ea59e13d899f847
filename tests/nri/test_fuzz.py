"""Whatever a peer sends, in whatever pieces: a typed end, bounded memory, no hang."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.nri import frame, mux
from koordlet.nri.errors import ClosedError, StatusError, WireError
from koordlet.nri.ttrpc import Client, Server
from koordlet.wire.pb import ttrpc_pb2 as pb
from tests.nri.fake_runtime import run

splits = st.lists(st.integers(1, 5000), min_size=1, max_size=20)
muxed = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=200)), max_size=20)
calls = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from([0, 1, 2, 3, 77]),
        st.integers(0, 7),
        st.one_of(
            st.binary(max_size=300),
            st.just(pb.Request(service="s", method="echo").SerializeToString()),
            st.just(pb.Response(payload=b"x").SerializeToString()),
        ),
    ),
    max_size=20,
)


def pieces(data: bytes, sizes: list[int]) -> Iterable[bytes]:
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


@given(muxed, splits, st.integers(0, 30))
def test_mux_gives_each_connection_its_bytes(
    sent: list[tuple[int, bytes]], sizes: list[int], cut: int
) -> None:
    wire = b"".join(struct.pack(">II", i, len(d)) + d for i, d in sent)
    decoder = mux.Decoder()
    got: dict[int, bytes] = {}
    for piece in pieces(wire[: len(wire) - cut], sizes):
        for connection, part in decoder.feed(piece):
            got[connection] = got.get(connection, b"") + bytes(part)
    for connection in range(4):
        whole = b"".join(d for i, d in sent if i == connection)
        assert whole.startswith(got.get(connection, b""))
        assert cut or got.get(connection, b"") == whole


@given(st.binary(max_size=2000), splits)
def test_mux_survives_random_bytes(data: bytes, sizes: list[int]) -> None:
    decoder = mux.Decoder()
    given_on = 0
    try:
        for piece in pieces(data, sizes):
            given_on += sum(len(part) for _, part in decoder.feed(piece))
    except WireError:
        return
    assert given_on <= len(data)
    assert len(decoder._header) < mux.HEADER.size


@given(st.binary(max_size=20_000))
def test_a_message_becomes_frames_that_go_can_read(message: bytes) -> None:
    wire = mux.frames(1, message)
    found = []
    while wire:
        connection, length = mux.HEADER.unpack_from(wire)
        assert connection == 1
        found.append(wire[8 : 8 + length])
        wire = wire[8 + length :]
    assert b"".join(found) == message
    assert len(found) <= 2
    assert len(found[0]) <= 4096


@given(calls, splits)
def test_frames_come_out_as_they_went_in(
    sent: list[tuple[int, int, int, bytes]], sizes: list[int]
) -> None:
    wire = b"".join(frame.HEADER.pack(len(p), s, k, f) + p for s, k, f, p in sent)
    decoder = frame.Decoder()
    got = [each for piece in pieces(wire, sizes) for each in decoder.feed(memoryview(piece))]
    assert [(f.stream, f.kind, f.flags, f.payload) for f in got] == sent


@given(st.integers(frame.MAX_RECEIVED_BYTES + 1, (1 << 32) - 1))
def test_frames_that_are_too_long_are_not_kept(length: int) -> None:
    decoder = frame.Decoder()
    wire = frame.HEADER.pack(length, 1, 1, 0) + bytes(100_000)
    assert list(decoder.feed(memoryview(wire))) == []
    assert not decoder._payload


@settings(max_examples=60)
@given(st.one_of(st.binary(max_size=2000), calls), splits)
def test_server_and_client_survive_anything(
    sent: bytes | list[tuple[int, int, int, bytes]], sizes: list[int]
) -> None:
    wire = (
        sent
        if isinstance(sent, bytes)
        else b"".join(frame.HEADER.pack(len(p), s, k, f) + p for s, k, f, p in sent)
    )

    async def main() -> None:
        answers: list[bytes] = []

        async def send(message: bytes) -> None:
            answers.append(message)

        async def echo(payload: bytes) -> bytes:
            return payload

        server, client = Server(send, {"s": {"echo": echo}}), Client(send)
        call = asyncio.create_task(client.call("s", "m", b"", 5))
        await asyncio.sleep(0)
        for piece in pieces(wire, sizes):
            await server.receive(memoryview(piece))
            await client.receive(memoryview(piece))
        client.close("the end")
        ended = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(ended[0], bytes | ClosedError | StatusError)
        await server.close()
        decoder = frame.Decoder()
        for answer in answers[1:]:
            (each,) = decoder.feed(memoryview(answer))
            assert each.kind == frame.RESPONSE and each.payload is not None
            pb.Response.FromString(each.payload)

    run(main())
