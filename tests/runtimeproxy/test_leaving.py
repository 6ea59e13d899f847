"""Connections end: of the proxy's own will, or the runtime's. No call runs twice, none is left."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import grpc
import pytest

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import make
from tests.runtimeproxy.rig import Rig, Seen, in_loop, rig, until
from tests.runtimeproxy.test_held import FREE, HELD, Fake
from tests.runtimeproxy.test_raw_client import connected

LAST = 2**31 - 1
OURS = b"koordlet"


def requests(place: Rig) -> list[bytes]:
    return [message for seen in place.runtime.seen for message in seen.requests]


@in_loop
async def test_no_stream_above_the_last_goes_anywhere(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await gate.wait()
        return seen.requests

    async with rig(tmp_path) as place:
        place.runtime.answer = wait
        client = await connected(place)
        client.call(1, FREE, b"runs")
        await until(lambda: requests(place) == [b"runs"])
        draining = asyncio.ensure_future(place.front.drain(20))
        await client.until(lambda: OURS in client.pings)
        assert client.goaways == [LAST]
        client.call(3, FREE, b"on its way")  # the client has not seen the GOAWAY yet
        client.send(make(frames.PING, frames.ACK, 0, OURS))
        client.call(5, FREE, b"too late")
        client.send(make(frames.WINDOW_UPDATE, 0, 5, bytes([0, 0, 0, 1])))
        client.send(make(frames.RST_STREAM, 0, 5, bytes(4)))
        await client.until(lambda: len(client.goaways) == 2)
        assert client.goaways == [LAST, 3]
        await until(lambda: len(requests(place)) == 2)
        gate.set()
        await client.until_ended(1, 3)
        await client.until_closed()
        await draining
        assert client.status == {1: 0, 3: 0}
        assert requests(place) == [b"runs", b"on its way"]
        assert not place.meter.faults


@in_loop
async def test_a_client_that_answers_no_ping(tmp_path: Path) -> None:
    async with rig(tmp_path) as place:
        client = await connected(place)
        client.call(1, FREE, b"x")
        await client.until_ended(1)
        await place.front.drain(5)
        await client.until_closed()
        assert client.goaways == [LAST, 1]


@in_loop
async def test_what_the_runtime_has_not_may_run_elsewhere(tmp_path: Path) -> None:
    """A held call at the end of the time to drain: gRPC runs it again by itself."""

    async def think(message: bytes) -> None:
        await asyncio.sleep(3600)

    async def forever(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        await asyncio.sleep(3600)
        return []

    async with rig(tmp_path, fake := Fake(think)) as place:
        place.runtime.answer = forever
        client = await connected(place)
        client.call(1, HELD, b"held")
        client.call(3, FREE, b"runs")
        await until(lambda: fake.messages == [b"held"] and requests(place) == [b"runs"])
        await place.front.drain(0)
        await client.until_closed()
        assert client.resets == {1: frames.REFUSED_STREAM}
        assert client.status == {3: 14}
        assert requests(place) == [b"runs"]


class _Backend(asyncio.Protocol):
    """Answers nothing; the test says what it writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(make(frames.SETTINGS, 0, 0))


@in_loop
async def test_streams_that_the_runtime_will_not_take_are_let_go(tmp_path: Path) -> None:
    stopped: list[bytes] = []

    async def think(message: bytes) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(message)
            raise

    async with rig(tmp_path, fake := Fake(think)) as place:
        await place.server.stop(None)
        Path(place.runtime_path).unlink(missing_ok=True)
        made: list[_Backend] = []

        def backend() -> _Backend:
            made.append(_Backend())
            return made[-1]

        server = await asyncio.get_running_loop().create_unix_server(backend, place.runtime_path)
        client = await connected(place)
        client.call(1, FREE, b"taken")
        client.call(3, HELD, b"cut off")
        client.call(5, FREE, b"cut off")
        await until(lambda: len(fake.messages) == 1 and len(place.meter.calls) == 3)
        runtime = made[-1].transport
        runtime.write(frames.goaway(1, frames.NO_ERROR))
        await client.until(lambda: client.goaways == [1])
        await until(lambda: stopped == [b"cut off"])
        assert sorted(place.meter.ends) == [(HELD, None), (FREE, None)]
        client.call(7, HELD, b"cut off as well")
        (link,) = place.front._links
        assert link.busy
        runtime.write(make(frames.RST_STREAM, 0, 1, bytes(4)))
        await until(lambda: not link.busy)
        assert len(fake.messages) == 1
        draining = asyncio.ensure_future(place.front.drain(5))
        await client.until(lambda: OURS in client.pings)
        client.send(make(frames.PING, frames.ACK, 0, OURS))
        await client.until_closed()
        await draining
        assert max(client.goaways) == 1  # never higher than before (RFC 9113 section 6.8)
        server.close()


@pytest.mark.parametrize("how", ["reset", "gone"])
@in_loop
async def test_a_question_that_is_cancelled_before_it_is_asked(tmp_path: Path, how: str) -> None:
    """Everything arrives at once, so that the hook's task has not begun when it is cancelled."""
    begun: list[bytes] = []

    async def think(message: bytes) -> None:
        begun.append(message)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        async with rig(tmp_path, Fake(think)) as place:
            client = await connected(place)
            client.call(1, FREE, b"x")
            await client.until_ended(1)
            calls = []
            for number in range(3, 43, 2):
                calls += [
                    make(frames.HEADERS, frames.END_HEADERS, number, client.block(HELD)),
                    make(frames.DATA, frames.END_STREAM, number, bytes(5)),
                    make(frames.RST_STREAM, 0, number, bytes(4)) if how == "reset" else b"",
                ]
            if how == "gone":
                calls.append(make(frames.DATA, 0, 99, b"x"))  # which ends the connection
            client.send(*calls)
            await until(lambda: len(place.meter.ends) == 21)
            assert begun == []
            gc.collect()
            client.writer.close()
    assert [str(each.message) for each in said if "never awaited" in str(each.message)] == []
