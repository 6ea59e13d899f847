"""Frames are taken apart and put out unchanged however they are cut; garbage is a ProtocolError."""

from __future__ import annotations

import struct

import pytest
from hpack import Decoder, Encoder, HeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from koordlet.runtimeproxy.http2.headers import HeaderReader, status_of, trailers
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import FrameReader, ProtocolError, make

_BLOCK_KINDS = (frames.HEADERS, frames.PUSH_PROMISE, frames.CONTINUATION)
plain_frames = st.builds(
    make,
    st.integers(0, 255).filter(lambda kind: kind not in _BLOCK_KINDS),
    st.integers(0, 255),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=200),
)


@given(st.lists(plain_frames, max_size=8), st.lists(st.integers(1, 300), max_size=20))
def test_what_goes_in_comes_out(parts: list[bytes], cuts: list[int]) -> None:
    data = frames.PREFACE + b"".join(parts)
    reader = FrameReader(from_client=True)
    out = []
    for size in cuts:
        out += [frame.raw for frame in reader.feed(data[:size])]
        data = data[size:]
    out += [frame.raw for frame in reader.feed(data)]
    assert out == [frames.PREFACE, *parts]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.integers(1, 50))
def test_a_continued_header_block_is_one_frame(pieces: list[bytes], step: int) -> None:
    kinds = [frames.HEADERS, *[frames.CONTINUATION] * (len(pieces) - 1)]
    flags = [0] * (len(pieces) - 1) + [frames.END_HEADERS]
    raw = b"".join(
        make(kind, flag, 7, piece) for kind, flag, piece in zip(kinds, flags, pieces, strict=True)
    )
    reader = FrameReader(from_client=False)
    found = [
        frame
        for begin in range(0, len(raw), step)
        for frame in reader.feed(raw[begin : begin + step])
    ]
    assert [frame.raw for frame in found] == [raw]
    assert frames.header_block(found[0]) == b"".join(pieces)


@given(st.lists(st.binary(max_size=400), max_size=6), st.booleans())
def test_garbage_is_a_protocol_error_or_frames(chunks: list[bytes], from_client: bool) -> None:
    """Whatever comes: no other exception, and no frame that was not in the bytes."""
    reader, headers = FrameReader(from_client=from_client), HeaderReader()
    data, out = b"".join(chunks), b""
    try:
        for chunk in chunks:
            for frame in reader.feed(chunk):
                out += frame.raw
                if frame.kind == frames.HEADERS:
                    headers.read(frame)
                elif frame.kind == frames.DATA:
                    frames.data_of(frame)
                elif frame.kind == frames.SETTINGS:
                    list(frames.settings_of(frame))
                elif frame.kind == frames.WINDOW_UPDATE:
                    frames.increment_of(frame)
    except ProtocolError as error:
        assert str(error)
    assert data.startswith(out)


@given(st.binary(max_size=300))
def test_garbage_in_a_header_block(block: bytes) -> None:
    frame = next(
        iter(
            FrameReader(from_client=False).feed(make(frames.HEADERS, frames.END_HEADERS, 1, block))
        )
    )
    try:
        HeaderReader().read(frame)
    except ProtocolError as error:
        assert error.code == frames.COMPRESSION_ERROR


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (make(frames.CONTINUATION, 4, 1, b"x"), "without a header block"),
        (make(frames.HEADERS, 0, 1) + make(frames.DATA, 0, 1), "inside a header block"),
        (make(frames.HEADERS, 0, 1) + make(frames.CONTINUATION, 4, 3), "inside a header block"),
        (make(frames.HEADERS, 0, 1) + make(9, 0, 1, bytes(1 << 14)) * 65, "header block above"),
        (make(frames.HEADERS, 0, 1) + make(9, 0, 1) * 128, "128 frames"),
        (make(frames.DATA, 0, 1, bytes((1 << 14) + 1)), "above 16384 bytes"),
        (b"\xff\xff\xff\0\0\0\0\0\1", "above 16384 bytes"),
    ],
)
def test_broken_header_blocks_and_frames(data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        list(FrameReader(from_client=False).feed(data))


def test_headers_of_requests_are_smaller_than_those_of_responses() -> None:
    """Texts of errors come in the latter."""
    block = make(frames.HEADERS, 0, 1) + make(9, 0, 1, bytes(1 << 14)) * 4 + make(9, 4, 1, b"x")
    assert len(list(FrameReader(from_client=False).feed(block))) == 1
    with pytest.raises(ProtocolError, match="above 65536 bytes"):
        list(FrameReader(from_client=True).feed(frames.PREFACE + block))


def test_a_block_in_many_pieces_is_whole() -> None:
    pieces = [make(frames.HEADERS, 0, 1, b"x")] + [make(9, 0, 1, b"y" * 500)] * 126
    reader = FrameReader(from_client=False)
    assert not [frame for piece in pieces for frame in reader.feed(piece)]
    (whole,) = reader.feed(make(9, frames.END_HEADERS, 1, b"z"))
    assert frames.header_block(whole) == b"x" + b"y" * 63_000 + b"z"


def test_padding_and_priority_are_not_part_of_the_content() -> None:
    flags = frames.PADDED | frames.HAS_PRIORITY | frames.END_HEADERS
    payload = b"\x02" + bytes(5) + b"\x88" + bytes(2)
    found = next(iter(_read(make(frames.HEADERS, flags, 1, payload))))
    assert frames.header_block(found) == b"\x88"
    data = next(iter(_read(make(frames.DATA, frames.PADDED, 1, b"\x03abc" + bytes(3)))))
    assert frames.data_of(data) == b"abc"
    bad = next(iter(_read(make(frames.DATA, frames.PADDED, 1, b"\x04abc"))))
    with pytest.raises(ProtocolError, match="padding"):
        frames.data_of(bad)


def test_our_trailers_can_be_read_and_leave_the_table_alone() -> None:
    encoder, reader = Encoder(), HeaderReader()
    first = encoder.encode([(b":status", b"200"), (b"x-kept", b"value")])
    ours = trailers(5, 14, "100 % ä\n", alone=True)
    again = encoder.encode([(b"x-kept", b"value")])
    assert len(again) == 1  # it refers to the table
    blocks = [
        make(frames.HEADERS, frames.END_HEADERS, 1, first),
        ours,
        make(frames.HEADERS, frames.END_HEADERS, 1, again),
    ]
    read = [reader.read(frame) for block in blocks for frame in _read(block)]
    assert status_of(read[1]) == 14
    assert read[1][b"grpc-message"] == b"100 %25 %C3%A4%0A"
    assert read[2] == {b"x-kept": b"value"}


small = st.sampled_from([b"a", b"b", b"c", b"d" * 40])


@given(
    st.lists(st.lists(st.tuples(small, small, st.booleans()), max_size=4), max_size=25),
    st.sampled_from([0, 33, 34, 40, 70, 120, 4096]),
)
def test_what_is_remembered_of_blocks_is_what_they_mean(
    lists: list[list[tuple[bytes, bytes, bool]]], table_bytes: int
) -> None:
    """In tables so small that entries go as fast as they come."""
    encoder, reader, plain = Encoder(), HeaderReader(), Decoder()
    encoder.header_table_size = table_bytes
    for number, headers in enumerate(lists):
        block = encoder.encode(
            [HeaderTuple(n, v) if keep else (n, v, True) for n, v, keep in headers]
        )
        frame = next(iter(_read(make(frames.HEADERS, frames.END_HEADERS, number * 2 + 1, block))))
        wanted = plain.decode(block, raw=True)
        assert reader.read(frame) == {bytes(name): bytes(value) for name, value in wanted}


def test_a_table_may_grow_to_what_the_reader_announced() -> None:
    encoder, reader = Encoder(), HeaderReader()
    encoder.header_table_size = 65536
    block = make(frames.HEADERS, frames.END_HEADERS, 1, encoder.encode([(b"a", b"b")]))
    with pytest.raises(ProtocolError):
        HeaderReader().read(next(iter(_read(block))))
    reader.allow_table(65536)
    assert reader.read(next(iter(_read(block)))) == {b"a": b"b"}


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", struct.pack(">L", 0), bytes(5)])
def test_odd_window_updates(payload: bytes) -> None:
    frame = next(iter(_read(make(frames.WINDOW_UPDATE, 0, 1, payload))))
    with pytest.raises(ProtocolError):
        frames.increment_of(frame)


def _read(data: bytes) -> list[frames.Frame]:
    return list(FrameReader(from_client=False).feed(data))
