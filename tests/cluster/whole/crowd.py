"""A thousand nodes that lose the same API server: they are real members of a cluster, the server is
its queue alone, and time is virtual, so that the figures are the same on every machine."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import msgspec

from koordlet.cluster.around import Around
from koordlet.cluster.member import Member
from koordlet.cluster.options import Options
from koordlet.kernel.host import Host
from koordlet.kube.backoff import Backoff
from koordlet.kube.client import MOST_LARGE_BYTES, Client
from koordlet.kube.errors import NotSentError, RefusedError
from koordlet.kube.holdings import Holdings
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Mirror
from koordlet.kube.objects import ListMetadata, Object, Page
from koordlet.state.listed import ListedSource
from tests.daemon.virtual import run_virtually

AT_ONCE, TAKES_S = 8, 0.002
"""The server answers 4,000 requests a second: eight cores, with lists of one object."""
SLOT_S = 0.1
SETTLED_S = 10.0
_UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"


@dataclass
class Clock:
    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Server:
    """``state``: "up", "down" (connections are refused) or "busy" (503 to all).

    ``version`` is that of every object. ``oldest``: watches from before it get 410.
    """

    clock: Clock
    state: str = "up"
    version: int = 1
    oldest: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    """Slot of SLOT_S -> requests that reached it."""
    tried: Counter[int] = field(default_factory=Counter)
    """Slot -> connections that were refused."""
    holdings: Holdings = field(default_factory=lambda: Holdings(MOST_LARGE_BYTES))
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def go(self, state: str) -> None:
        self.state = state
        if state != "up":
            self._cut.set()
            self._cut = asyncio.Event()

    async def page(self, kind: Kind[Object], **_: Any) -> Page:
        await self._served()
        item = msgspec.Raw(json.dumps(self._item(kind)).encode())
        return Page(f"{kind.name}List", ListMetadata(str(self.version)), (item,))

    async def watch(
        self, kind: Kind[Object], *, query: Mapping[str, str], lasts_s: float, **_: Any
    ) -> AsyncGenerator[list[bytes], None]:
        cut = self._cut
        await self._served()
        if int(query["resourceVersion"]) < self.oldest:
            raise RefusedError("too old", 410, "Expired")
        yield []
        seen = int(query["resourceVersion"])
        if seen < self.version:
            event = {"type": "MODIFIED", "object": self._item(kind)}
            yield [json.dumps(event).encode()]
        try:
            async with asyncio.timeout(lasts_s):
                await cut.wait()
        except TimeoutError:
            return

    async def _served(self) -> None:
        slot = int(self.clock.now_s / SLOT_S)
        if self.state == "down":
            self.tried[slot] += 1
            await asyncio.sleep(0.001)
            raise NotSentError("refused")
        self.asked[slot] += 1
        if self.state == "busy":
            raise RefusedError("starting", 503)
        async with self._turns:
            await asyncio.sleep(TAKES_S)

    def _item(self, kind: Kind[Object]) -> dict[str, Any]:
        meta = {"name": "node-1", "uid": _UID, "resourceVersion": str(self.version)}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}


@dataclass(frozen=True)
class Outcome:
    """``right_s``: from the return of the server until the last node was right. ``peak``: most
    requests in SLOT_S. ``tries_per_s``: most refused connections in a second of an outage that has
    lasted SETTLED_S already."""

    right_s: float
    peak: int
    tries_per_s: int
    requests: int


def outage(
    nodes: int,
    lasts_s: float,
    *,
    busy_s: float = 0.0,
    forgets: bool = False,
    draw: Callable[[], float] | None = None,
) -> Outcome:
    """All of ``nodes`` watch, the server goes for ``lasts_s``, answers 503 for ``busy_s`` more,
    and is back with other objects. ``forgets``: it no longer has the versions that they know."""
    clock = Clock()
    return run_virtually(clock, _outage(clock, nodes, lasts_s, busy_s, forgets, draw))


async def _outage(
    clock: Clock,
    nodes: int,
    lasts_s: float,
    busy_s: float,
    forgets: bool,
    draw: Callable[[], float] | None,
) -> Outcome:
    server = Server(clock)
    chance = random.Random(11)
    with mock.patch("random.random", draw or chance.random):
        mirrors = [each for _ in range(nodes) for each in _mirrors(server, draw or chance.random)]
        return await _lived(server, mirrors, lasts_s, busy_s, forgets)


def _mirrors(server: Server, draw: Callable[[], float]) -> Sequence[Mirror[Any]]:
    """Of one node."""
    around = SimpleNamespace(
        host=server.clock,
        listed={"api": ListedSource("api", cast(Host, server.clock))},
        problems={},
        took_node=lambda _: None,
        took_slo=lambda _: None,
    )
    member = Member(Options("kubeconfig", "node-1"), cast(Around, around))
    member._mirror(cast(Client, server))
    for each in member.mirrors():
        each._draw = draw
        each._backoff = Backoff(draw, most_s=each._backoff.most_s)
    return member.mirrors()


async def _lived(
    server: Server, mirrors: Sequence[Mirror[Any]], lasts_s: float, busy_s: float, forgets: bool
) -> Outcome:
    clock = server.clock
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(mirror.run()) for mirror in mirrors]
        await _until(lambda: all(m.synced for m in mirrors))
        await asyncio.sleep(60)
        gone_s = clock.now_s
        await server.go("down")
        await asyncio.sleep(lasts_s)
        if busy_s:
            await server.go("busy")
            await asyncio.sleep(busy_s)
        server.version += 1
        server.oldest = server.version if forgets else 0
        server.asked.clear()
        await server.go("up")
        back_s = clock.now_s
        await _until(lambda: all(_knows(m, server.version) for m in mirrors))
        outcome = Outcome(
            clock.now_s - back_s,
            max(server.asked.values()),
            _most_in_a_second(server.tried, gone_s + SETTLED_S),
            server.asked.total(),
        )
        for each in tasks:
            each.cancel()
    return outcome


def _knows(mirror: Mirror[Any], version: int) -> bool:
    found = [item.metadata.resource_version for item in mirror.objects.values()]
    return found == [str(version)]


def _most_in_a_second(slots: Counter[int], from_s: float) -> int:
    seconds: Counter[int] = Counter()
    for slot, count in slots.items():
        if slot * SLOT_S >= from_s:
            seconds[int(slot * SLOT_S)] += count
    return max(seconds.values(), default=0)


async def _until(holds: Callable[[], bool]) -> None:
    """By virtual time."""
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.02)
