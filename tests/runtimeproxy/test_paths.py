"""Paths are read as a decoder reads them, before the decoder has."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder, HeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from koordlet.runtimeproxy.http2.paths import PathReader
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import FrameReader, ProtocolError, make

PATHS = (b"/a", b"/b", b"/runtime.v1.RuntimeService/CreateContainer", b"/", b"/index.html")
_FIXED = ((b":method", b"POST"), (b":scheme", b"http"), (b"te", b"trailers"))


def frame(block: bytes) -> frames.Frame:
    raw = make(frames.HEADERS, frames.END_HEADERS, 1, block)
    return next(iter(FrameReader(from_client=False).feed(raw)))


call = st.tuples(
    st.sampled_from(PATHS),
    st.booleans(),  # whether the path goes into the table
    st.integers(0, 50),  # its deadline
    st.sampled_from([b"", b"v" * 30, b"v" * 200]),
    st.booleans(),  # whether the table follows at once
)


@given(st.lists(call, max_size=40), st.sampled_from([0, 60, 100, 200, 4096]))
def test_a_path_is_what_a_decoder_finds(
    calls: list[tuple[bytes, bool, int, bytes, bool]], table_bytes: int
) -> None:
    """Also in tables so small that entries go as fast as they come."""
    encoder, reader, plain = Encoder(), PathReader(), Decoder()
    encoder.header_table_size = table_bytes
    for path, kept, deadline, value, follow in calls:
        pairs = [*_FIXED, (b":path", path) if kept else (b":path", path, True)]
        pairs += [HeaderTuple(b"grpc-timeout", b"%du" % deadline), HeaderTuple(b"x", value)]
        block = encoder.encode(pairs)
        wanted = dict(plain.decode(block, raw=True))[b":path"]
        assert wanted == path
        assert reader.read(frame(block)) == path.decode()
        if follow:
            reader.catch_up()
    reader.catch_up()


def test_most_calls_of_grpc_need_no_decoder() -> None:
    encoder, reader = Encoder(), PathReader()
    decoded = 0
    for number in range(200):
        timeout = (b"grpc-timeout", b"%du" % (9_000_000 + number))
        block = encoder.encode([*_FIXED, (b":path", PATHS[number % 2]), timeout])
        assert reader.read(frame(block)) == PATHS[number % 2].decode()
        decoded += not reader._behind
        reader.catch_up()
    assert decoded < 20  # the first, and those in which an entry came into the table again


def test_a_table_that_is_behind_is_followed_before_it_counts() -> None:
    """The second block refers to an entry that the first one adds."""
    encoder, reader = Encoder(), PathReader()
    first = encoder.encode([*_FIXED, (b":path", b"/a"), (b"grpc-timeout", b"0S")])
    assert reader.read(frame(first)) == "/a"
    again = encoder.encode([*_FIXED, (b":path", b"/a"), (b"grpc-timeout", b"1S")])
    assert reader.read(frame(again)) == "/a" and reader._behind
    third = encoder.encode([*_FIXED, (b":path", b"/a"), (b"grpc-timeout", b"1S")])
    assert reader.read(frame(third)) == "/a"
    fourth = encoder.encode([*_FIXED, (b":path", b"/b"), (b"grpc-timeout", b"2S")])
    assert reader.read(frame(fourth)) == "/b"
    assert not reader._behind


@pytest.mark.parametrize("known", [False, True])
def test_two_paths_are_refused(known: bool) -> None:
    encoder, reader = Encoder(), PathReader()
    if known:
        reader.read(frame(encoder.encode([(b":path", b"/a"), (b":path2", b"/b")])))
        reader.read(frame(encoder.encode([(b":path", b"/b")])))
    block = encoder.encode([(b":path", b"/a"), (b":path", b"/b")])
    with pytest.raises(ProtocolError, match="two paths"):
        reader.read(frame(block))


def test_what_the_table_has_not_is_found_when_it_follows() -> None:
    encoder, reader = Encoder(), PathReader()
    reader.read(frame(encoder.encode([(b":path", b"/a")])))
    assert reader.read(frame(b"\xbe\xc9")) == "/a"  # 62 is the path, 73 is nothing
    with pytest.raises(ProtocolError, match="header block"):
        reader.catch_up()


def test_made_up_paths_are_not_kept_for_ever() -> None:
    encoder, reader = Encoder(), PathReader()
    for number in range(1000):
        assert reader.read(frame(encoder.encode([(b":path", b"/%d" % number)]))) == f"/{number}"
        reader.catch_up()
    assert len(reader._paths) <= 64


def test_trailers_have_no_path_and_a_long_one_is_cut() -> None:
    encoder, reader = Encoder(), PathReader()
    assert reader.read(frame(encoder.encode([(b"x", b"y")]))) == ""
    assert len(reader.read(frame(encoder.encode([(b":path", b"/" * 9000)])))) == 256
