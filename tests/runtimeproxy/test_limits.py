"""What clients may hold, and how many frames without a call they may send."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from koordlet.runtimeproxy import grpc_message, held
from koordlet.runtimeproxy.contract import Interceptor
from koordlet.runtimeproxy.http2 import limits
from koordlet.runtimeproxy.http2.inbound import Inbound
from koordlet.runtimeproxy.http2.limits import Account, Budget, Ledger
from koordlet.runtimeproxy.link import Link
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import ProtocolError, make
from tests.runtimeproxy.attack import headers
from tests.runtimeproxy.rig import Counts, in_loop, rig, until
from tests.runtimeproxy.test_held import FREE, HELD, Fake
from tests.runtimeproxy.test_raw_client import connected


def test_bytes_are_bounded_for_each_and_for_all() -> None:
    ledger = Ledger()
    greedy = [Account(ledger) for _ in range(4)]
    assert greedy[0].take(limits.MAX_HELD_BYTES)
    assert not greedy[0].take(1)
    rest = limits.MAX_HELD_BYTES_IN_ALL - limits.MAX_HELD_BYTES
    assert greedy[1].take(rest)
    assert not greedy[2].take(limits.OWN_HELD_BYTES + 1)
    assert greedy[2].take(limits.OWN_HELD_BYTES)  # which nobody can take away
    assert not greedy[2].take(1)
    greedy[0].release(limits.MAX_HELD_BYTES)
    assert greedy[2].take(1)
    assert not greedy[3].wait(limits.MAX_HELD_BYTES + 1)
    assert greedy[3].wait(10)
    for account, size in zip(greedy, (0, rest, limits.OWN_HELD_BYTES + 1), strict=False):
        account.release(size)
    greedy[3].wait(0)
    assert ledger.held_bytes == 0


def test_streams_are_bounded_for_each_and_for_all() -> None:
    ledger = Ledger()
    accounts = [Account(ledger) for _ in range(5)]
    for account in accounts[:4]:
        assert all(account.open() for _ in range(limits.MAX_STREAMS))
        assert not account.open()
    last = accounts[4]
    assert all(last.open() for _ in range(limits.OWN_STREAMS))
    assert not last.open()
    accounts[0].close()
    accounts[0].close()
    for _ in range(limits.OWN_STREAMS):
        last.close()
    assert all(last.open() for _ in range(limits.OWN_STREAMS))


def test_frames_without_a_call_are_earned_by_responses_and_by_time() -> None:
    budget = Budget(0.0)
    for _ in range(limits.CHEAP_FRAMES):
        budget.spend()
    with pytest.raises(ProtocolError):
        budget.spend()
    budget.refill(1.0)
    for _ in range(limits.CHEAP_FRAMES_A_SECOND - 1):
        budget.spend()
    with pytest.raises(ProtocolError):
        budget.spend()
    budget = Budget(0.0)
    for _ in range(10 * limits.CHEAP_FRAMES):  # as gRPC answers a long response
        budget.responded()
        for _ in range(3):
            budget.spend()


def test_a_smaller_window_counts_when_it_is_acknowledged() -> None:
    inbound = Inbound()
    inbound.announce(10)
    inbound.check(-60_000)
    inbound.announce(None)
    inbound.announce(100_000)
    inbound.check(-100_000)
    inbound.acknowledged()
    inbound.acknowledged()
    inbound.acknowledged()
    inbound.check(-100_000)
    inbound.announce(5)
    inbound.acknowledged()
    inbound.acknowledged()  # of nothing
    inbound.check(-5)
    with pytest.raises(ProtocolError):
        inbound.check(-6)
    inbound.spend(frames.DEFAULT_WINDOW_BYTES)
    with pytest.raises(ProtocolError):
        inbound.spend(1)


class _Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True

    def write(self, data: object) -> None:
        self.written += bytes(data)  # type: ignore[call-overload]

    def is_closing(self) -> bool:
        return False

    def write_eof(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def wired(interceptor: Interceptor) -> tuple[Link, _Wire, _Wire, Counts]:
    """A link without sockets, so that what arrives at once is the test's choice."""
    meter = Counts()
    link = Link(interceptor, meter, Ledger(), lambda: None, lambda link: None)
    client, backend = _Wire(), _Wire()
    link.client.connection_made(client)
    link.backend.connection_made(backend)
    return link, client, backend, meter


@pytest.mark.parametrize("path", [HELD, FREE])
@in_loop
async def test_data_beyond_a_window_ends_the_connection(path: str) -> None:
    link, client, backend, meter = wired(Fake())
    opened = frames.PREFACE + headers(1, path)
    full = make(frames.DATA, 0, 1, bytes(16_383)) * 4 + make(frames.DATA, 0, 1, b"xyz")
    link.client.data_received(opened + full)
    assert meter.faults == []
    if path == HELD:  # of which the proxy gave back all but what is too little to speak of
        grants = [each for each in sent(client) if each.kind == frames.WINDOW_UPDATE]
        assert sum(frames.increment_of(each) for each in grants if not each.stream) > 49_000
        link.client.data_received(full + full)
    else:
        link.client.data_received(make(frames.DATA, 0, 1, b"x"))
    assert meter.faults == ["client: DATA beyond the window of the connection"]
    assert sent(client)[-1].kind == sent(backend)[-1].kind == frames.GOAWAY


@in_loop
async def test_data_beyond_the_window_of_a_stream(tmp_path: Path) -> None:
    link, _, _, meter = wired(Fake())
    link.client.data_received(frames.PREFACE + headers(1, FREE) + headers(3, FREE))
    link.backend.data_received(make(frames.WINDOW_UPDATE, 0, 0, bytes([0, 1, 0, 0])))
    link.client.data_received(make(frames.DATA, 0, 1, bytes(16_383)) * 4)
    link.backend.data_received(make(frames.WINDOW_UPDATE, 0, 1, bytes([0, 0, 0, 9])))
    link.client.data_received(make(frames.DATA, 0, 3, bytes(16_383)))
    link.client.data_received(make(frames.DATA, 0, 1, bytes(12)))
    assert meter.faults == []
    link.client.data_received(make(frames.DATA, 0, 1, b"x"))
    assert meter.faults == ["client: DATA beyond the window of its stream"]


@in_loop
async def test_a_window_grows_for_held_calls_when_the_client_has_agreed(tmp_path: Path) -> None:
    """The runtime does not count on it before (RFC 9113 section 6.5.3)."""
    link, _, backend, _ = wired(Fake())
    grown = frames.settings({frames.SETTING_INITIAL_WINDOW_SIZE: 200_000})
    link.backend.data_received(grown + frames.window_update(0, 200_000))
    body = grpc_message.wrap(bytes(100_000))
    parts = [body[at : at + 16_000] for at in range(0, len(body), 16_000)]
    last = len(parts) - 1
    link.client.data_received(frames.PREFACE + headers(1, HELD))
    for number, part in enumerate(parts):
        flags = frames.END_STREAM if number == last else 0
        link.client.data_received(make(frames.DATA, flags, 1, part))
    assert sum(len(frames.data_of(each)) for each in sent(backend) if not each.kind) == 65_535
    link.client.data_received(make(frames.SETTINGS, frames.ACK, 0))
    arrived = b"".join(bytes(frames.data_of(each)) for each in sent(backend) if not each.kind)
    assert arrived == body
    kinds = [each.kind for each in sent(backend)]
    assert kinds.index(frames.SETTINGS) > kinds.index(frames.DATA)


@in_loop
async def test_whoever_does_not_read_is_not_read(tmp_path: Path) -> None:
    link, client, backend, _ = wired(Fake())
    link.client.pause_writing()
    assert not client.reading and not backend.reading
    link.backend.pause_writing()
    link.client.resume_writing()
    assert not client.reading and backend.reading
    link.backend.resume_writing()
    assert client.reading and backend.reading


def sent(wire: _Wire) -> list[frames.Frame]:
    return list(
        frames.FrameReader(from_client=False).feed(wire.written.removeprefix(frames.PREFACE))
    )


@in_loop
async def test_a_request_that_does_not_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MAX_REQUEST_S", 0.0)
    async with rig(tmp_path, Fake()) as place:
        client = await connected(place)
        client.send(
            make(frames.HEADERS, frames.END_HEADERS, 1, client.block(HELD)),
            make(frames.HEADERS, frames.END_HEADERS, 3, client.block(FREE)),
            make(frames.DATA, 0, 1, bytes(5)),
        )
        await until(lambda: len(place.meter.calls) == 2)
        place.front.look_after()
        await client.until_ended(1)
        assert client.status == {1: 4}
        client.call(5, FREE, b"x")
        await client.until_ended(5)
        (link,) = place.front._links
        assert link.busy  # the other has all the time its method wants
        client.writer.close()


@in_loop
async def test_settings_say_what_the_proxy_takes(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        client = await connected(place)
        client.send(make(frames.SETTINGS, 0, 0, b"\0\5\0\xff\xff\xff" + b"\0\1\xff\xff\xff\xff"))
        client.call(1, FREE, b"x")
        await client.until_ended(1)
        found = client.settings
        assert found[frames.SETTING_MAX_CONCURRENT_STREAMS] <= limits.MAX_STREAMS
        assert found.get(frames.SETTING_MAX_FRAME_SIZE, 16_384) == 16_384
        client.writer.close()


@in_loop
async def test_an_idle_connection_makes_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordlet.runtimeproxy.front.MAX_CONNECTIONS", 2)
    gate = asyncio.Event()

    async def think(message: bytes) -> None:
        await gate.wait()

    async with rig(tmp_path, Fake(think)) as place:
        idle, busy = await connected(place), await connected(place)
        for client in (idle, busy):
            client.call(1, FREE, b"x")
            await client.until_ended(1)
        busy.call(3, HELD, b"x")
        await until(lambda: any(link.busy for link in place.front._links))
        third = await connected(place)
        third.call(1, HELD, b"x")
        await idle.until_closed()
        assert idle.goaways == [1]
        await until(lambda: sum(link.busy for link in place.front._links) == 2)
        fourth = await connected(place)
        with contextlib.suppress(ConnectionError):
            assert await fourth.until_closed() == b""
        assert place.front.turned_away == 1
        gate.set()
        await busy.until_ended(3)
        await third.until_ended(1)
        for client in (idle, busy, third, fourth):
            client.writer.close()
