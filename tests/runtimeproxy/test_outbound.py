"""Sending within windows: nothing lost, nothing mixed up, no window broken, nobody stuck."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.runtimeproxy.http2.outbound import Outbound
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import FrameReader, ProtocolError

HELD, FREE = (1, 3, 5), (7, 9, 11)


class Peers:
    """A client that keeps to what it sees of the connection's window, and a backend that notices
    when its window is broken and pays late."""

    def __init__(self) -> None:
        self.out = Outbound()
        for stream in HELD:
            self.out.hold(stream)
        self.client_view = frames.DEFAULT_WINDOW_BYTES
        self.window = frames.DEFAULT_WINDOW_BYTES
        self.windows = dict.fromkeys(HELD, frames.DEFAULT_WINDOW_BYTES)
        self.unpaid = 0
        self.unpaid_of = dict.fromkeys(HELD, 0)
        self.wanted = dict.fromkeys((*HELD, *FREE), b"")
        self.arrived = dict.fromkeys((*HELD, *FREE), b"")

    def send_held(self, stream: int, body: bytes) -> None:
        self.wanted[stream] += body
        self.out.put(stream, body, end=False)
        self.flush()

    def send_free(self, stream: int, body: bytes) -> None:
        body = body[: self.client_view]
        self.client_view -= len(body)
        self.wanted[stream] += body
        if self.out.passes(stream, len(body)):
            self.arrive(stream, body)
        else:
            self.out.put(stream, body, end=False)
        self.flush()

    def arrive(self, stream: int, body: bytes) -> None:
        self.arrived[stream] += body
        self.window -= len(body)
        self.unpaid += len(body)
        assert self.window >= 0
        if stream in self.windows:
            self.windows[stream] -= len(body)
            self.unpaid_of[stream] += len(body)
            assert self.windows[stream] >= 0

    def flush(self) -> None:
        for raw in self.out.flush():
            for frame in FrameReader(from_client=False).feed(raw):
                self.arrive(frame.stream, frames.data_of(frame))
        assert self.out.window == self.window

    def pay(self, share: float) -> None:
        increment = int(self.unpaid * share)
        if increment:
            self.unpaid -= increment
            self.window += increment
            self.client_view += self.out.paid(increment)
        for stream in HELD:
            if due := self.unpaid_of[stream]:
                self.unpaid_of[stream] = 0
                self.windows[stream] += due
                assert self.out.paid_stream(stream, due)
        self.flush()
        assert self.client_view <= frames.DEFAULT_WINDOW_BYTES


steps = st.lists(
    st.one_of(
        st.tuples(st.just("held"), st.sampled_from(HELD), st.integers(0, 120_000)),
        st.tuples(st.just("free"), st.sampled_from(FREE), st.integers(0, 60_000)),
        st.tuples(st.just("pay"), st.just(0), st.integers(0, 100)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(steps)
def test_all_arrives_in_order_and_the_view_comes_back(plan: list[tuple[str, int, int]]) -> None:
    peers = Peers()
    for number, (what, stream, amount) in enumerate(plan):
        body = bytes([number % 256]) * amount
        if what == "held":
            peers.send_held(stream, body)
        elif what == "free":
            peers.send_free(stream, body)
        else:
            peers.pay(amount / 100)
    for _ in range(200):
        peers.pay(1.0)
    assert peers.arrived == peers.wanted
    assert peers.out.debt == 0
    assert peers.client_view == peers.window == frames.DEFAULT_WINDOW_BYTES


def test_an_ended_stream_gives_back_what_waited_for_it() -> None:
    out = Outbound()
    assert out.passes(7, frames.DEFAULT_WINDOW_BYTES)
    assert not out.passes(7, 10)
    out.put(7, bytes(10), end=True)
    assert out.flush() == []
    assert out.forget(7) == 10
    out.hold(1)
    out.put(1, bytes(10), end=True)
    assert out.forget(1) == 0  # that was given back when it came
    assert not out.waits(1)


def test_the_end_of_a_stream_needs_no_window() -> None:
    out = Outbound()
    out.announce(0)
    out.hold(1)
    out.put(1, b"", end=True)
    assert out.flush() == [frames.make(frames.DATA, frames.END_STREAM, 1)]


def test_an_announced_window_moves_open_streams() -> None:
    out = Outbound()
    out.hold(1)
    out.announce(10)
    out.put(1, bytes(15), end=True)
    assert [len(raw) - frames.HEAD_BYTES for raw in out.flush()] == [10]
    out.announce(20)
    assert [len(raw) - frames.HEAD_BYTES for raw in out.flush()] == [5]


def test_windows_above_the_limit_of_http2_are_refused() -> None:
    out = Outbound()
    with pytest.raises(ProtocolError):
        out.announce(2**31)
    with pytest.raises(ProtocolError):
        out.paid(2**31 - 1)
