"""A recording runtime, the proxy's transport in front of it, and a client, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from koordlet.runtimeproxy.backend import Backend
from koordlet.runtimeproxy.contract import Call, Interceptor
from koordlet.runtimeproxy.front import Front

BIG = 17 << 20
OPTIONS = [
    ("grpc.max_receive_message_length", BIG),
    ("grpc.max_send_message_length", BIG),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # also how long gRPC gives a connection to be made
    ("grpc.max_reconnect_backoff_ms", 200),
]
RUNTIME = "/runtime.v1.RuntimeService/"
IMAGES = "/runtime.v1.ImageService/"


@dataclass
class Seen:
    path: str
    requests: list[bytes]
    metadata: list[tuple[str, str | bytes]]
    remaining_s: float | None
    cancelled: bool = False


Answer = Callable[[Seen, grpc.aio.ServicerContext], Awaitable[list[bytes]]]


async def echo(seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
    return seen.requests


@dataclass
class Runtime(grpc.GenericRpcHandler):
    """Serves any method of any service; ``answer`` tells what."""

    answer: Answer = echo
    seen: list[Seen] = field(default_factory=list)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        path = details.method
        metadata = [(key, value) for key, value in details.invocation_metadata]

        async def serve(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[bytes]:
            seen = Seen(path, [], metadata, context.time_remaining())
            self.seen.append(seen)
            try:
                async for request in requests:
                    seen.requests.append(request)
                for response in await self.answer(seen, context):
                    yield response
            except asyncio.CancelledError:
                seen.cancelled = True
                raise

        return grpc.stream_stream_rpc_method_handler(serve)

    def of(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.endswith(f"/{method}")]


async def serve(handler: grpc.GenericRpcHandler, path: str) -> grpc.aio.Server:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = grpc.aio.server(options=OPTIONS, handlers=(handler,))
    assert server.add_insecure_port(f"unix://{path}")
    await server.start()
    return server


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler, path: str) -> AsyncIterator[None]:
    server = await serve(handler, path)
    try:
        yield
    finally:
        await server.stop(None)


def channel(path: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix://{path}", options=OPTIONS)


class Nothing:
    """An interceptor that wants no call."""

    def wants(self, path: str) -> bool:
        return False

    def begin(self, path: str, message: bytes) -> Call:
        raise AssertionError("not wanted")


@dataclass
class Counts:
    """A meter that remembers."""

    calls: list[tuple[str, bool]] = field(default_factory=list)
    ends: list[tuple[str, int | None]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def called(self, path: str, *, held: bool) -> None:
        self.calls.append((path, held))

    def added(self, path: str, *, held: bool, seconds: float) -> None:
        assert seconds >= 0

    def ended(self, path: str, status: int | None) -> None:
        self.ends.append((path, status))

    def broken(self, text: str) -> None:
        self.faults.append(text)


@dataclass
class Rig:
    directory: str
    runtime: Runtime
    server: grpc.aio.Server
    front: Front
    backend: Backend
    meter: Counts
    client: grpc.aio.Channel
    direct: grpc.aio.Channel

    @property
    def runtime_path(self) -> str:
        return os.path.join(self.directory, "runtime.sock")

    @property
    def proxy_path(self) -> str:
        return os.path.join(self.directory, "proxy.sock")

    async def call(self, path: str, request: bytes = b"", **options: object) -> bytes:
        found = await self.client.unary_unary(path)(request, **options)
        assert isinstance(found, bytes)
        return found


@asynccontextmanager
async def rig(directory: object, interceptor: Interceptor | None = None) -> AsyncIterator[Rig]:
    """Everything up; ended and unlinked afterwards."""
    place = str(directory)
    runtime, meter = Runtime(), Counts()
    runtime_path, proxy_path = (os.path.join(place, f"{n}.sock") for n in ("runtime", "proxy"))
    server = await serve(runtime, runtime_path)
    backend = Backend(runtime_path)
    front = Front(backend, interceptor or Nothing(), meter)
    listening = await asyncio.get_running_loop().create_unix_server(front.accept, proxy_path)
    client, direct = channel(proxy_path), channel(runtime_path)
    found = Rig(place, runtime, server, front, backend, meter, client, direct)
    try:
        yield found
    finally:
        backend.close()
        await client.close()
        await direct.close()
        listening.close()
        await front.drain(0)
        await found.server.stop(None)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine function, each in a loop of its own."""

    @functools.wraps(test)
    def run(*args: object, **options: object) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **options), 30))

    return run


async def until(condition: Callable[[], bool], at_most_s: float = 10.0) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + at_most_s
    while not condition():
        assert loop.time() < end, "it did not come to pass"
        await asyncio.sleep(0.01)
