"""Who comes to the socket: a link to the runtime, or a responder while there is none."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

from koordlet.runtimeproxy.backend import Backend
from koordlet.runtimeproxy.contract import Interceptor, Meter
from koordlet.runtimeproxy.http2.limits import MAX_CONNECTIONS, Ledger
from koordlet.runtimeproxy.link import Link
from koordlet.runtimeproxy.responder import Responder

_DRAIN_POLL_S: Final = 0.02
_SETTLE_S: Final = 1.0
"""How long a client may take to answer a PING while the proxy drains."""


class Front:
    """Give ``accept`` to the listening socket as its protocol factory."""

    def __init__(self, backend: Backend, interceptor: Interceptor, meter: Meter) -> None:
        self._backend = backend
        self._interceptor = interceptor
        self._meter = meter
        self._ledger = Ledger()
        self._newcomers: set[_Newcomer] = set()
        self._links: set[Link] = set()
        self._lingering: deque[Link] = deque()
        self._responders: set[Responder] = set()
        self._draining = False
        self.turned_away = 0
        """Connections that came when there were as many as may be, all of them busy."""
        backend.on_back.append(self._dismiss)

    @property
    def clients(self) -> int:
        return len(self._links) + len(self._responders)

    def accept(self) -> asyncio.Protocol:
        return _Newcomer(self)

    def make_room(self, newcomer: _Newcomer) -> bool:
        """Whether another connection may come. For it goes one that ended and whose client has not
        read so, or an idle one; gRPC connects again when it has a call to make."""
        while self._lingering and all(side.closed for side in self._lingering[0].sides()):
            self._lingering.popleft()
        if len(self._newcomers) + self.clients + len(self._lingering) >= MAX_CONNECTIONS:
            idle = [link for link in self._links if not link.busy]
            if not self._lingering and idle:
                min(idle, key=lambda link: link.idle_since).close("")
            if not self._lingering:
                self.turned_away += 1
                return False
            for side in self._lingering.popleft().sides():
                side.abort()
        self._newcomers.add(newcomer)
        return True

    def _ended(self, link: Link) -> None:
        self._links.discard(link)
        self._lingering.append(link)

    def gone(self, newcomer: _Newcomer) -> None:
        self._newcomers.discard(newcomer)

    def look_after(self) -> None:
        """For once a second."""
        for link in tuple(self._links):
            link.look_after()

    async def drain(self, at_most_s: float) -> None:
        """Ends all connections: calls that run may end first, for so long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._draining = True
        for link in tuple(self._links):
            link.drain()
        while self._busy and loop.time() < began + at_most_s:
            await asyncio.sleep(_DRAIN_POLL_S)
            if loop.time() > began + _SETTLE_S:
                for link in tuple(self._links):
                    link.settle()
        for link in tuple(self._links):
            link.close("koordlet runtime-proxy is being stopped")
        self._dismiss()
        self._draining = False

    @property
    def _busy(self) -> bool:
        return bool(self._newcomers) or any(link.busy for link in self._links)

    async def settle(self, transport: asyncio.Transport) -> None:
        """Gives a new connection its protocol; until then nothing is read from it."""
        link = Link(
            self._interceptor,
            self._meter,
            self._ledger,
            self._backend.lost,
            self._ended,
        )
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
            if self._draining:
                link.close("")
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
        if not self._front.make_room(self):
            client.abort()
            return
        client.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._front.settle(client))
        self._task.add_done_callback(lambda task: self._front.gone(self))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
