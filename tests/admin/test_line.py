"""Calls on a connection whose peer says what it likes; ``test_server.py`` has the true one."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.admin import line as calls
from koordlet.admin.client import Client, RefusedError
from koordlet.admin.line import CallError, Line
from tests.admin.harness import Served

PATH = "/koordlet.admin.v1.Admin/Status"


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return struct.pack(">BHBBL", 0, len(payload), kind, flags, stream) + payload


def head(*pairs: tuple[str, str], end: bool = False) -> bytes:
    return frame(1, 5 if end else 4, Encoder().encode(pairs))


def data(message: bytes, *, flags: int = 0, compressed: int = 0) -> bytes:
    return frame(0, flags, struct.pack(">BL", compressed, len(message)) + message)


BEGIN = head((":status", "200"), ("content-type", "application/grpc"))
END = head(("grpc-status", "0"), end=True)
SETTINGS = frame(4, 0, struct.pack(">HL", 4, 1 << 20), 0)
PING = frame(6, 0, b"12345678", 0)


@contextmanager
def peer(said: bytes, *, ends: bool = True) -> Iterator[tuple[Line, socket.socket]]:
    """A line on which ``said`` is waiting, and nothing after it where it ``ends``."""
    ours, its = socket.socketpair()
    with ours, its:
        its.sendall(said)
        if ends:
            its.shutdown(socket.SHUT_WR)
        yield Line(ours), its


HALVES = data(b"halves")[9:]


@pytest.mark.parametrize(
    ("said", "messages"),
    [
        (SETTINGS + BEGIN + data(b"one") + END, [b"one"]),
        (BEGIN + PING + data(b"") + data(b"two") + END, [b"", b"two"]),
        (BEGIN + frame(0, 0, HALVES[:4]) + frame(0, 0, HALVES[4:]) + END, [b"halves"]),
        (BEGIN + frame(0, 8, b"\2" + data(b"padded")[9:] + b"\0\0") + END, [b"padded"]),
        (BEGIN + frame(0, 0, b"of an earlier call", stream=3) + END, []),
        (frame(1, 0, BEGIN[9:15]) + frame(9, 4, BEGIN[15:]) + data(b"parts") + END, [b"parts"]),
    ],
)
def test_what_is_understood(said: bytes, messages: list[bytes]) -> None:
    with peer(said) as (line, _):
        assert list(line.call(PATH, b"request", 5.0)) == messages
        assert line.is_open


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        (b"", calls.UNAVAILABLE, "closed"),
        (BEGIN + data(b"cut")[:-2], calls.UNAVAILABLE, "closed"),
        (head((":status", "502"), end=True), calls.UNKNOWN, "no gRPC"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", calls.INTERNAL, "no gRPC"),
        (frame(1, 4, b"\xff\xff\xff\xff\xff"), calls.INTERNAL, "headers"),
        (BEGIN + data(b"zip", compressed=1), calls.INTERNAL, "compressed"),
        (BEGIN + frame(3, 0, b"\0\0\0\2"), calls.UNAVAILABLE, "broken off"),
        (frame(7, 0, bytes(8), stream=0), calls.UNAVAILABLE, "stops"),
        (
            head(("grpc-status", "5"), ("grpc-message", "no %22pod%22"), end=True),
            calls.NOT_FOUND,
            'no "pod"',
        ),
    ],
)
def test_how_a_call_ends(said: bytes, status: int, text: str) -> None:
    with peer(said) as (line, _):
        with pytest.raises(CallError, match=text) as ended:
            list(line.call(PATH, b"request", 5.0))
        assert ended.value.status == status
        assert line.is_open is (status == calls.NOT_FOUND)


def test_who_says_nothing_is_not_waited_for() -> None:
    with peer(SETTINGS, ends=False) as (line, _):
        with pytest.raises(CallError) as ended:
            list(line.call(PATH, b"request", 0.05))
        assert ended.value.status == calls.DEADLINE_EXCEEDED
        assert not line.is_open


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([SETTINGS, BEGIN, END, PING, data(b"x")]) | st.binary(max_size=40)))
def test_nothing_but_a_call_error_comes_of_what_a_peer_says(said: list[bytes]) -> None:
    with peer(b"".join(said)) as (line, _), contextlib.suppress(CallError):
        list(line.call(PATH, b"request", 5.0))


def test_a_request_is_of_several_frames_and_too_long_a_one_is_not_sent(served: Served) -> None:
    with Client(served.path) as client:
        assert client.explain("x" * 50_000, 1).decisions
        with pytest.raises(RefusedError, match="more than 60000 bytes"):
            client.explain("x" * 70_000, 0)
        assert client.status().pid == 4321


def test_a_connection_that_was_closed_for_being_idle_is_made_again(served: Served) -> None:
    with Client(served.path) as client:
        client.status()
        (idle,) = client._idle
        idle._socket.shutdown(socket.SHUT_RDWR)
        assert client.status().pid == 4321
