"""A runtime as a plugin sees one: multiplexer and ttrpc written from the specification, without the
code under test. It reads as Go does, and so fails where Go would (docs/reference/wire.md 2.2)."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from koordlet.wire.pb import nri_pb2 as nri
from koordlet.wire.pb import ttrpc_pb2 as ttrpc

PLUGIN, RUNTIME = 1, 2
GO_BUFFER_BYTES = 4096
GO_QUEUE_FRAMES = 256
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, with a limit, and no task left over."""

    async def watched() -> T:
        try:
            async with asyncio.timeout(20):
                return await main
        finally:
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left over: {left}"

    return asyncio.run(watched())


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


class GoMemoryError(AssertionError):
    """Go's ENOMEM: a frame is longer than the buffer that was offered for it."""


class GoConnection:
    """One logical connection: a queue of frames, read through a buffer of 4096 bytes."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(GO_QUEUE_FRAMES)
        self._buffer = b""

    async def read_full(self, count: int) -> bytes:
        """``io.ReadFull`` on a ``bufio.Reader``."""
        out = b""
        while len(out) < count:
            wanted = count - len(out)
            if self._buffer:
                out, self._buffer = out + self._buffer[:wanted], self._buffer[wanted:]
            elif wanted >= GO_BUFFER_BYTES:
                out += await self._frame(wanted)
            else:
                self._buffer = await self._frame(GO_BUFFER_BYTES)
        return out

    async def _frame(self, room: int) -> bytes:
        frame = await self.queue.get()
        if not frame:
            raise EOFError
        if len(frame) > room:
            raise GoMemoryError(f"a frame of {len(frame)} bytes for a buffer of {room}")
        return frame

    async def message(self) -> tuple[int, int, int, bytes]:
        """(stream, type, flags, payload)"""
        length, stream, kind, flags = struct.unpack(">IIBB", await self.read_full(10))
        return stream, kind, flags, await self.read_full(length)


class CallError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Peer:
    """The runtime's end of one connection. ``failure`` is what its reader died of."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, runtime: FakeRuntime
    ) -> None:
        self._reader = reader
        self.writer = writer
        self._runtime = runtime
        self._connections = {PLUGIN: GoConnection(), RUNTIME: GoConnection()}
        self._next = 1
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self.failure: BaseException | None = None
        self.registered: nri.RegisterPluginRequest | None = None
        self.updates: list[nri.UpdateContainersRequest] = []
        self._tasks = [
            asyncio.create_task(self._guard(work()))
            for work in (self._pump, self._answers, self._requests)
        ]

    async def call(self, method: str, request: Any, answer: Any, timeout_nano: int = 0) -> Any:
        """A method of the plugin, by the name of its full request."""
        envelope = ttrpc.Request(
            service="nri.pkg.api.v1alpha1.Plugin",
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=timeout_nano,
        )
        stream, self._next = self._next, self._next + 2
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[stream] = future
        self.send(PLUGIN, stream, 1, envelope.SerializeToString())
        async with asyncio.timeout(10):
            return answer.FromString(await future)

    def send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        """Header and payload through a buffer of 4096 bytes, as Go writes them."""
        message = struct.pack(">IIBB", len(payload), stream, kind, 0) + payload
        for part in (message[:GO_BUFFER_BYTES], message[GO_BUFFER_BYTES:]):
            if part:
                self.writer.write(struct.pack(">II", connection, len(part)) + part)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def gone(self) -> None:
        """Until the plugin has closed."""
        await self._tasks[0]

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (EOFError, OSError):
            pass
        except AssertionError as error:
            self.failure = error
            self.writer.transport.abort()

    async def _pump(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(8)
                connection, length = struct.unpack(">II", head)
                assert length <= (4 << 20) + 10, f"a frame of {length} bytes"
                data = await self._reader.readexactly(length)
                if data:
                    try:
                        self._connections[connection].queue.put_nowait(data)
                    except asyncio.QueueFull:
                        raise AssertionError("more than 256 frames wait to be read") from None
        finally:
            for each in self._connections.values():
                with contextlib.suppress(asyncio.QueueFull):
                    each.queue.put_nowait(b"")
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(EOFError("the plugin closed"))
                    future.exception()

    async def _answers(self) -> None:
        while True:
            stream, kind, flags, payload = await self._connections[PLUGIN].message()
            assert (kind, flags) == (2, 0)
            future = self._pending.pop(stream)
            response = ttrpc.Response.FromString(payload)
            if response.status.code:
                future.set_exception(CallError(response.status.code, response.status.message))
            else:
                future.set_result(response.payload)

    async def _requests(self) -> None:
        last = 0
        while True:
            stream, kind, flags, payload = await self._connections[RUNTIME].message()
            assert (kind, flags) == (1, 0)
            assert stream % 2 == 1 and stream > last
            last = stream
            request = ttrpc.Request.FromString(payload)
            assert request.service == "nri.pkg.api.v1alpha1.Runtime"
            assert request.timeout_nano > 0
            answer = self._serve(request)
            if answer is not None:
                self.send(RUNTIME, stream, 2, answer.SerializeToString())

    def _serve(self, request: ttrpc.Request) -> ttrpc.Response | None:
        if request.method == "RegisterPlugin":
            self.registered = nri.RegisterPluginRequest.FromString(request.payload)
            if self._runtime.rejects:
                status = ttrpc.Status(code=2, message=self._runtime.rejects)
                return ttrpc.Response(status=status)
            if self._runtime.hangs:
                return None
            return ttrpc.Response(payload=nri.Empty().SerializeToString())
        assert request.method == "UpdateContainers"
        asked = nri.UpdateContainersRequest.FromString(request.payload)
        self.updates.append(asked)
        if self._runtime.hangs:
            return None
        failed = [each for each in asked.update if each.container_id in self._runtime.unknown]
        answer = nri.UpdateContainersResponse(failed=failed)
        return ttrpc.Response(payload=answer.SerializeToString())


@dataclass
class FakeRuntime:
    """Listens on ``path``. ``dedicated``: NRI 0.12, one method for each event.

    ``rejects``: what registrations are refused with; ``hangs``: no request of the plugin
    is answered;
    ``unknown``: containers whose updates fail; ``config``: of the plugin's drop-in file.
    """

    path: str
    dedicated: bool = False
    rejects: str = ""
    hangs: bool = False
    config: str = ""
    name: str = "containerd"
    chunk: int = 0
    pods: Sequence[nri.PodSandbox] = ()
    containers: Sequence[nri.Container] = ()
    unknown: frozenset[str] = frozenset()
    nri_version: str = "v0.12.3"
    peers: list[Peer] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            await peer.close()

    async def admitted(self, number: int = 1) -> Peer:
        """The ``number``-th connection, registered, configured and synchronized."""
        await until(lambda: len(self.peers) >= number)
        peer = self.peers[number - 1]
        await until(lambda: peer.registered is not None)
        await self.configure(peer)
        await self.synchronize(peer)
        return peer

    async def configure(self, peer: Peer) -> int:
        request = nri.ConfigureRequest(
            config=self.config,
            runtime_name=self.name,
            runtime_version="1.7.24~ds1",
            registration_timeout=5000,
            request_timeout=2000,
            NRI_version=self.nri_version,
        )
        answer = await peer.call("Configure", request, nri.ConfigureResponse)
        known = 14 if self.nri_version else 11
        assert answer.events < 1 << known, "the runtime does not know that event"
        mask: int = answer.events
        return mask

    async def synchronize(self, peer: Peer) -> None:
        """In parts of ``chunk`` objects; 0: at once."""
        pods, containers = list(self.pods), list(self.containers)
        while True:
            size = self.chunk or len(pods) + len(containers)
            now, pods = pods[:size], pods[size:]
            room = size - len(now)
            those, containers = containers[:room], containers[room:]
            more = bool(pods or containers)
            request = nri.SynchronizeRequest(pods=now, containers=those, more=more)
            answer = await peer.call("Synchronize", request, nri.SynchronizeResponse)
            assert answer.more == more
            assert not (more and answer.update)
            if not more:
                return

    async def event(
        self,
        peer: Peer,
        name: str,
        pod: nri.PodSandbox | None,
        container: nri.Container | None = None,
    ) -> None:
        """An event without an answer, as this generation of runtimes tells it."""
        if name == "StopContainer":
            stop = nri.StopContainerRequest(pod=pod, container=container)
            await peer.call(name, stop, nri.StopContainerResponse)
        elif self.dedicated:
            parts = {"pod": pod} if container is None else {"pod": pod, "container": container}
            request = getattr(nri, f"{name}Request")(**parts)
            await peer.call(name, request, getattr(nri, f"{name}Response"))
        else:
            number = getattr(nri, _constant(name))
            change = nri.StateChangeEvent(event=number, pod=pod, container=container)
            await peer.call("StateChange", change, nri.Empty)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(Peer(reader, writer, self))


def _constant(name: str) -> str:
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in name).lstrip("_")
