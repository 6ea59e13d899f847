"""Multiplexer and ttrpc: client against server, and both against raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koordlet.nri import frame, mux
from koordlet.nri.errors import ClosedError, Code, StatusError, WireError
from koordlet.nri.mux import Trunk
from koordlet.nri.ttrpc import MAX_IN_FLIGHT, Client, Server, Services
from koordlet.wire.pb import ttrpc_pb2 as pb
from tests.nri.fake_runtime import run, until

PLUGIN, RUNTIME = 1, 2


async def echo(payload: bytes) -> bytes:
    return payload


@contextlib.asynccontextmanager
async def connected(path: Path, services: Services) -> AsyncIterator[tuple[Client, Trunk]]:
    """A client, and its trunk, of a server with ``services`` at the other end of a socket."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        trunk = Trunk(reader, writer)
        server = Server(trunk.sender(PLUGIN), services)
        trunk.open(PLUGIN, server.receive)
        try:
            await trunk.run()
        except (WireError, OSError):
            pass
        finally:
            await server.close()
            await trunk.close()

    listener = await asyncio.start_unix_server(accept, path / "s")
    trunk = Trunk(*await asyncio.open_unix_connection(path / "s"))
    client = Client(trunk.sender(PLUGIN))
    trunk.open(PLUGIN, client.receive)
    reading = asyncio.create_task(_read(trunk, client))
    try:
        yield client, trunk
    finally:
        await trunk.close()
        await reading
        listener.close()
        await asyncio.sleep(0.02)  # the other end notices


async def _read(trunk: Trunk, client: Client) -> None:
    why = "the peer closed"
    try:
        await trunk.run()
    except (WireError, OSError) as error:
        why = str(error)
    client.close(why)


@pytest.mark.parametrize("size", [0, 1, 4085, 4086, 4087, 70_000, (4 << 20) - 100])
def test_calls_of_any_size(tmp_path: Path, size: int) -> None:
    async def main() -> None:
        async with connected(tmp_path, {"s": {"echo": echo}}) as (client, _):
            payload = bytes(size)
            assert await client.call("s", "echo", payload, 10) == payload

    run(main())


def test_calls_overtake_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        free = asyncio.Event()
        order = []

        async def slow(payload: bytes) -> bytes:
            await free.wait()
            return payload

        async with connected(tmp_path, {"s": {"slow": slow, "echo": echo}}) as (client, _):

            async def call(method: str) -> None:
                assert await client.call("s", method, method.encode()) == method.encode()
                order.append(method)

            waiting = asyncio.create_task(call("slow"))
            await asyncio.sleep(0)
            await call("echo")
            free.set()
            await waiting
        assert order == ["echo", "slow"]

    run(main())


def test_no_more_calls_at_a_time_than_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        free = asyncio.Event()
        running = most = 0

        async def busy(payload: bytes) -> bytes:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await free.wait()
            running -= 1
            return payload

        async with connected(tmp_path, {"s": {"busy": busy}}) as (client, _):
            calls = [
                asyncio.create_task(client.call("s", "busy", b"")) for _ in range(2 * MAX_IN_FLIGHT)
            ]
            await until(lambda: running == MAX_IN_FLIGHT)
            free.set()
            await asyncio.gather(*calls)
        assert most == MAX_IN_FLIGHT

    run(main())


def test_statuses(tmp_path: Path) -> None:
    async def fails(payload: bytes) -> bytes:
        raise StatusError(9, "not in this state")

    async def breaks(payload: bytes) -> bytes:
        raise KeyError("who")

    async def sleeps(payload: bytes) -> bytes:
        await asyncio.sleep(60)
        return payload

    async def grows(payload: bytes) -> bytes:
        return bytes(frame.MAX_PAYLOAD_BYTES)

    async def parses(payload: bytes) -> bytes:
        pb.Request.FromString(payload)
        return b""

    methods = {
        "fails": fails,
        "breaks": breaks,
        "sleeps": sleeps,
        "grows": grows,
        "parses": parses,
        "echo": echo,
    }
    cases = [
        ("s", "fails", b"", 9, "not in this state"),
        ("s", "breaks", b"", Code.UNKNOWN, "KeyError: 'who'"),
        ("s", "grows", b"", Code.RESOURCE_EXHAUSTED, "response: "),
        ("s", "parses", b"\xff", Code.INVALID_ARGUMENT, "s/parses"),
        ("s", "nothing", b"", Code.UNIMPLEMENTED, "s/nothing"),
        ("other", "echo", b"", Code.UNIMPLEMENTED, "'other'"),
        ("s", "echo", bytes(frame.MAX_PAYLOAD_BYTES), Code.RESOURCE_EXHAUSTED, "request echo"),
        ("s", "sleeps", b"", Code.DEADLINE_EXCEEDED, ""),
    ]

    async def main() -> None:
        async with connected(tmp_path, {"s": methods}) as (client, _):
            for service, method, payload, code, text in cases:
                with pytest.raises(StatusError) as caught:
                    await client.call(service, method, payload, 0.05 if method == "sleeps" else 10)
                assert (caught.value.code, text in caught.value.message) == (code, True), method
            assert await client.call("s", "echo", b"still there", 10) == b"still there"

    run(main())


def test_the_server_keeps_the_deadline_of_the_caller() -> None:
    """Seen from the server: the client's own deadline does not help."""

    async def main() -> None:
        cancelled = asyncio.Event()

        async def sleeps(payload: bytes) -> bytes:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return payload

        sent: list[bytes] = []
        server = Server(_into(sent), {"s": {"sleeps": sleeps}})
        for stream, nanos in ((1, 20_000_000), (3, -1)):
            request = pb.Request(service="s", method="sleeps", timeout_nano=nanos)
            await server.receive(
                memoryview(frame.encode(stream, frame.REQUEST, request.SerializeToString()))
            )
        await until(lambda: len(sent) == 2)
        assert cancelled.is_set()
        assert {_status(each).code for each in sent} == {Code.DEADLINE_EXCEEDED}
        await server.close()

    run(main())


def test_a_server_refuses_what_it_cannot_serve_and_goes_on() -> None:
    async def main() -> None:
        sent: list[bytes] = []
        server = Server(_into(sent), {"s": {"echo": echo}})
        good = pb.Request(service="s", method="echo", payload=b"x").SerializeToString()
        too_long = frame.MAX_RECEIVED_BYTES + 1
        wire = b"".join(
            (
                frame.encode(2, frame.REQUEST, good),  # an even id
                frame.encode(5, frame.REQUEST, good),
                frame.encode(3, frame.REQUEST, good),  # an id that goes back
                frame.encode(7, frame.REQUEST, b"\xff\xff"),  # no envelope
                frame.HEADER.pack(len(good), 9, frame.REQUEST, 2) + good,  # a stream
                frame.encode(9, frame.DATA, b"data of it"),
                frame.encode(9, 77, b"an unknown type"),
                frame.HEADER.pack(too_long, 11, frame.REQUEST, 0) + bytes(too_long),
                frame.encode(13, frame.REQUEST, good),
            )
        )
        await server.receive(memoryview(wire))
        await until(lambda: len(sent) == 7)
        await server.close()
        assert {_stream(each): _status(each).code for each in sent} == {
            2: Code.INVALID_ARGUMENT,
            5: Code.OK,
            3: Code.INVALID_ARGUMENT,
            7: Code.INVALID_ARGUMENT,
            9: Code.UNIMPLEMENTED,
            11: Code.RESOURCE_EXHAUSTED,
            13: Code.OK,
        }

    run(main())


def test_a_client_forgets_calls_that_it_gave_up() -> None:
    async def main() -> None:
        sent: list[bytes] = []
        client = Client(_into(sent))
        with pytest.raises(StatusError) as caught:
            await client.call("s", "m", b"", 0.01)
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        late = pb.Response(payload=b"late").SerializeToString()
        call = asyncio.create_task(client.call("s", "m", b"", 5))
        await until(lambda: len(sent) == 2)
        answers = (
            frame.encode(1, frame.RESPONSE, late),
            frame.encode(99, frame.RESPONSE, late),
            frame.encode(3, frame.DATA, late),
            frame.encode(3, frame.RESPONSE, pb.Response(payload=b"good").SerializeToString()),
            frame.encode(3, frame.RESPONSE, late),
        )
        await client.receive(memoryview(b"".join(answers)))
        assert await call == b"good"

    run(main())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (frame.encode(1, frame.RESPONSE, b"\xff"), Code.INTERNAL),
        (
            frame.HEADER.pack(frame.MAX_RECEIVED_BYTES + 1, 1, frame.RESPONSE, 0)
            + bytes(frame.MAX_RECEIVED_BYTES + 1),
            Code.RESOURCE_EXHAUSTED,
        ),
    ],
)
def test_answers_that_cannot_be_read(answer: bytes, code: Code) -> None:
    async def main() -> None:
        sent: list[bytes] = []
        client = Client(_into(sent))
        call = asyncio.create_task(client.call("s", "m", b"", 5))
        await until(lambda: sent)
        await client.receive(memoryview(answer))
        with pytest.raises(StatusError) as caught:
            await call
        assert caught.value.code == code

    run(main())


def test_a_lost_connection_ends_all_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async def hangs(payload: bytes) -> bytes:
            await asyncio.Event().wait()
            return payload

        async with connected(tmp_path, {"s": {"hangs": hangs}}) as (client, trunk):
            calls = [asyncio.create_task(client.call("s", "hangs", b"")) for _ in range(3)]
            await asyncio.sleep(0.02)
            await trunk.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in results} == {ClosedError}
            with pytest.raises(ClosedError):
                await client.call("s", "hangs", b"")

    run(main())


def test_a_peer_that_does_not_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mux, "SEND_TIMEOUT_S", 0.1)

    async def main() -> None:
        gone = asyncio.Event()

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await gone.wait()
            writer.transport.abort()

        listener = await asyncio.start_unix_server(deaf, tmp_path / "s")
        trunk = Trunk(*await asyncio.open_unix_connection(tmp_path / "s"))
        send = trunk.sender(PLUGIN)
        with pytest.raises(ClosedError, match="read nothing"):
            while True:
                await send(bytes(1 << 20))
        with pytest.raises(ClosedError):
            await send(b"more")
        await trunk.close()
        gone.set()
        listener.close()
        await asyncio.sleep(0.02)

    run(main())


def test_connections_of_a_trunk() -> None:
    """What is for nobody is dropped, what is in pieces is put together, empty frames are none."""

    async def main() -> None:
        got: list[bytes] = []

        async def receive(part: memoryview) -> None:
            got.append(bytes(part))

        reader = asyncio.StreamReader()
        trunk = Trunk(reader, None)  # type: ignore[arg-type]
        trunk.open(RUNTIME, receive)
        frames = ((9, b"nobody"), (RUNTIME, b"one"), (RUNTIME, b""), (0, b"x"), (RUNTIME, b"two"))
        reader.feed_data(b"".join(struct.pack(">II", i, len(d)) + d for i, d in frames))
        reader.feed_eof()
        await trunk.run()
        assert got == [b"one", b"two"]

    run(main())


def _into(sent: list[bytes]) -> mux.Send:
    async def send(message: bytes) -> None:
        sent.append(message)

    return send


def _stream(message: bytes) -> int:
    return int(frame.HEADER.unpack_from(message)[1])


def _status(message: bytes) -> pb.Status:
    return pb.Response.FromString(message[frame.HEADER.size :]).status
