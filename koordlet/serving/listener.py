"""Connections that strangers make, with a bound on how many there are and how fast they come.

A listener of ours serves everybody who can connect. Whoever holds connections and does nothing
with them must not shut others out, and whoever connects in a loop must not take the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable

import structlog

SERVED_PER_S = 100.0
SERVED_BURST = 64
"""Connections that are served, some 0.5 ms of CPU each."""
ADMITTED_PER_S = 1000.0
"""Connections about which it is asked whether to serve them, some 50 us each."""
NO_DESCRIPTORS_S = 1.0
"""Pause after the kernel refused to accept, for example because no descriptor is free."""

log = structlog.get_logger()

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Pace:
    """At most ``burst`` turns at once and ``per_s`` in the long run, in the order of asking."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic):
        self._step_s = 1 / per_s
        self._slack_s = burst * self._step_s
        self._clock = clock
        self._next_s = 0.0
        """When the next turn would be, if there were no burst."""

    def wait_s(self, turns: float = 1.0) -> float:
        """Takes so many turns; the seconds until they have come."""
        now = self._clock()
        self._next_s = max(self._next_s, now) + turns * self._step_s
        return max(0.0, self._next_s - self._slack_s - now)

    @property
    def left(self) -> float:
        """Turns that could be had at once; negative when too many were taken."""
        ahead_s = max(self._next_s - self._clock(), 0.0)
        return (self._slack_s - ahead_s) / self._step_s

    async def turn(self, turns: float = 1.0) -> None:
        wait_s = self.wait_s(turns)
        if wait_s > 0:
            await asyncio.sleep(wait_s)


class Slot:
    """One connection. ``idle_since``: monotonic seconds of its last progress. Until
    ``spared_until`` it is not dropped."""

    def __init__(self, owner: Hashable, drop: Callable[[], None]) -> None:
        self.owner = owner
        self.drop = drop
        self.idle_since = time.monotonic()
        self.spared_until = -math.inf

    def progress(self, spare_s: float = 0.0) -> None:
        """Its client has sent or read something. ``spare_s``: so long it is not dropped."""
        self.idle_since = time.monotonic()
        self.spared_until = self.idle_since + spare_s


class Slots:
    """At most ``limit`` connections. When all are taken, a newcomer has the place of the idlest one
    of the owner who holds the most, the newcomer counted: so an owner with many connections shuts
    out nobody but itself. An owner who holds ``of_one`` has all that it gets."""

    def __init__(self, limit: int, of_one: int | None = None) -> None:
        self._limit, self._of_one = limit, limit if of_one is None else of_one
        self._taken: set[Slot] = set()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, owner: Hashable, drop: Callable[[], None]) -> Slot | None:
        """``drop`` ends the connection that gets the slot, when another needs it. None: every
        connection is spared."""
        slot = Slot(owner, drop)
        held = Counter(slot.owner for slot in self._taken)
        if len(self._taken) >= self._limit or held[owner] >= self._of_one:
            idlest = self._idlest(owner, held)
            if idlest is None:
                return None
            self.leave(idlest)
            self.dropped += 1
            idlest.drop()
        self._taken.add(slot)
        return slot

    def leave(self, slot: Slot) -> None:
        self._taken.discard(slot)

    def _idlest(self, newcomer: Hashable, held: Counter[Hashable]) -> Slot | None:
        now = time.monotonic()
        idle = [slot for slot in self._taken if slot.spared_until <= now]
        if held[newcomer] >= self._of_one:
            idle = [slot for slot in idle if slot.owner == newcomer]
        held[newcomer] += 1
        return min(idle, key=lambda slot: (-held[slot.owner], slot.idle_since), default=None)


class Listener:
    """Accepts on ``sock``, which it listens on and closes, and runs ``serve`` for each connection
    in a task of its own. ``serve`` owns the connection and closes it.

    Connections that come too fast wait in the kernel's queue. With ``admit``, which says whether to
    serve one, they come ten times as fast: it has to see to it that few are served.
    """

    def __init__(
        self,
        sock: socket.socket,
        serve: Serve,
        *,
        limit_bytes: int,
        backlog: int,
        admit: Callable[[socket.socket], bool] | None = None,
    ) -> None:
        """``limit_bytes``: of the stream reader."""
        self._sock = sock
        self._serve = serve
        self._limit_bytes = limit_bytes
        self._admit = admit
        self._pace = Pace(SERVED_PER_S if admit is None else ADMITTED_PER_S, SERVED_BURST)
        self._connections: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        sock.listen(backlog)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def stop(self) -> None:
        """Ends connections where they are."""
        self._accepting.cancel()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(self._accepting, *self._connections, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._pace.turn()
            try:
                peer, _ = await loop.sock_accept(self._sock)
            except ConnectionError:
                continue  # it hung up while it waited
            except OSError as error:
                log.warning("connections are not accepted", error=str(error))
                await asyncio.sleep(NO_DESCRIPTORS_S)
                continue
            if self._admit is not None and not self._admit(peer):
                peer.close()
                continue
            task = loop.create_task(self._run(peer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _run(self, peer: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=peer, limit=self._limit_bytes)
        except OSError:
            peer.close()
            return
        try:
            await self._serve(reader, writer)
        except OSError:
            pass  # the peer hung up
        except Exception:  # the isolation boundary: one connection, whatever it raised
            log.exception("connection failed")
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
