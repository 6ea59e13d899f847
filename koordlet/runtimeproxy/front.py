"""Who comes to the socket: a link to the runtime, or a responder while there is none."""

from __future__ import annotations

import asyncio
from typing import cast

from koordlet.runtimeproxy.backend import Backend
from koordlet.runtimeproxy.contract import Interceptor, Meter
from koordlet.runtimeproxy.link import Link
from koordlet.runtimeproxy.responder import Responder

_DRAIN_POLL_S = 0.02


class Front:
    """Give ``accept`` to the listening socket as its protocol factory."""

    def __init__(self, backend: Backend, interceptor: Interceptor, meter: Meter) -> None:
        self._backend = backend
        self._interceptor = interceptor
        self._meter = meter
        self._links: set[Link] = set()
        self._responders: set[Responder] = set()
        backend.on_back.append(self._dismiss)

    @property
    def clients(self) -> int:
        return len(self._links) + len(self._responders)

    def accept(self) -> asyncio.Protocol:
        return _Newcomer(self)

    async def drain(self, at_most_s: float) -> None:
        """Ends all connections: calls that run may end first, for so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + at_most_s
        for link in self._links:
            link.drain()
        while any(link.busy for link in self._links) and loop.time() < until:
            await asyncio.sleep(_DRAIN_POLL_S)
        for link in tuple(self._links):
            link.close("koordlet runtime-proxy is being stopped")
        self._dismiss()

    async def settle(self, transport: asyncio.Transport) -> None:
        """Gives a new connection its protocol; until then nothing is read from it."""
        link = Link(self._interceptor, self._meter, self._backend.lost, self._links.discard)
        link.client.connection_made(transport)  # the runtime may speak before the client does
        connected = await self._backend.connect(link.backend)
        if transport.is_closing():
            if connected is not None:
                connected.abort()
            return
        if connected is None:
            responder = Responder(
                transport, lambda: self._backend.trouble, self._meter, self._responders.discard
            )
            self._responders.add(responder)
            transport.set_protocol(responder)
        else:
            self._links.add(link)
            transport.set_protocol(link.client)
        transport.resume_reading()

    def _dismiss(self) -> None:
        for responder in tuple(self._responders):
            responder.dismiss()


class _Newcomer(asyncio.Protocol):
    def __init__(self, front: Front) -> None:
        self._front = front
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast(asyncio.Transport, transport)
        client.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._front.settle(client))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
