"""A public socket with gRPC behind it that costs nothing before somebody calls.

grpcio's Python API shows no peer credentials and costs 10 MiB. So a listener of ours accepts,
asks the kernel who called, and passes the bytes on to a gRPC server on a socket in a directory
that only koordlet may enter: one for root, another for the members of the socket's group. Each is
started when the first caller of its kind comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog

from koordlet.serving.caller import Caller
from koordlet.serving.listener import Listener, Pace, Slot, Slots
from koordlet.serving.relay import CHUNK_BYTES, relay
from koordlet.serving.unix_socket import (
    BACKLOG,
    GROUP_MODE,
    ROOT_MODE,
    Access,
    PublicSocket,
    access_of,
    caller_of,
    group_id,
    open_public,
)

MAX_CONNECTIONS = 32
"""For each access: a busy group cannot lock root out."""
SENT_BYTES_PER_S = 64 * 1024
SENT_BURST_BYTES = 256 * 1024
"""What one user of the socket's group may send: whatever the bytes are, gRPC has to parse them. A
request takes some hundred."""
CONNECTIONS_PER_S = 20.0
CONNECTIONS_BURST = 64
MAX_USERS = 256
STOP_S = 0.5

_log = structlog.get_logger()


class Backend(Protocol):
    """A gRPC server that runs."""

    async def stop(self, grace: float | None) -> Any: ...


class Own(NamedTuple):
    """A protocol that the daemon speaks itself: whoever begins with ``greeting`` is handed to
    ``serve``, which ends the connection. It has as many bytes as the preface of HTTP/2, with which
    all callers of gRPC begin."""

    greeting: bytes
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _User:
    """What a user of the group may still do."""

    def __init__(self) -> None:
        self.connections = Pace(CONNECTIONS_PER_S, CONNECTIONS_BURST)
        self.sent_bytes = Pace(SENT_BYTES_PER_S, SENT_BURST_BYTES)


class Door:
    """``start`` raises SocketError; ``stop`` ends within a second whatever the clients do.

    ``refused`` counts connections turned away: ``credentials``; ``too-many``: all places were
    taken, and the idlest connection of the user who held the most had to go; ``too-fast``: this
    user makes them in a loop.
    """

    def __init__(
        self,
        path: str,
        start_backend: Callable[[Access, str], Awaitable[Backend]],
        *,
        private: str,
        group: str | None,
        own: Own | None = None,
    ) -> None:
        """``start_backend(access, path)`` serves what callers of this kind may do on a private
        socket. ``private``: see ``open_public``. ``group`` (a name; empty: the daemon's own) has
        Access.READ_ONLY; None: root alone comes in. ``own``: spoken on the same socket."""
        self._path = path
        self._start_backend = start_backend
        self._private = private
        self._group = group
        self._own = own
        self._public: PublicSocket | None = None
        self._listener: Listener | None = None
        self._backends: dict[Access, tuple[str, Backend]] = {}
        self._starting = asyncio.Lock()
        self._slots: Mapping[Access, Slots] = {
            access: Slots(MAX_CONNECTIONS) for access in (Access.FULL, Access.READ_ONLY)
        }
        self._users: dict[int, _User] = {}
        """Those of the group, by uid."""
        self._callers: dict[str, Caller] = {}
        self.refused: Counter[str] = Counter()

    def caller(self, peer: str) -> Caller | None:
        """Who is behind a connection that the backend calls ``peer``; None once it has ended."""
        return self._callers.get(peer)

    async def start(self) -> None:
        gid = group_id(self._group) if self._group else None
        mode = ROOT_MODE if self._group is None else GROUP_MODE
        self._public = open_public(self._path, gid, private=self._private, mode=mode)
        self._listener = Listener(
            self._public.sock,
            self._accepted,
            limit_bytes=CHUNK_BYTES,
            backlog=BACKLOG,
            admit=self._admit,
        )

    async def stop(self) -> None:
        if self._listener is None or self._public is None:
            return
        await asyncio.gather(
            *(server.stop(STOP_S) for _, server in self._backends.values()),
            self._listener.stop(),
            return_exceptions=True,
        )
        for path, _ in self._backends.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._backends.clear()
        self._public.close()
        self._listener = self._public = None

    @property
    def connections(self) -> int:
        return sum(map(len, self._slots.values()))

    def _admit(self, peer: socket.socket) -> bool:
        who = self._who(peer)
        if who is None:
            self.refused["credentials"] += 1
            return False
        access, uid = who
        if access is Access.READ_ONLY:
            connections = self._user(uid).connections
            if connections.left < 1:
                self.refused["too-fast"] += 1
                return False
            connections.wait_s()
        return True

    def _who(self, peer: socket.socket) -> tuple[Access, int] | None:
        """Access and uid of whoever may come in."""
        assert self._public is not None
        try:
            access, uid = access_of(peer, self._public.gid)
        except OSError:  # it has gone
            return None
        if access is Access.NONE or (self._group is None and access is not Access.FULL):
            return None
        return access, uid

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = self._who(writer.get_extra_info("socket"))
        if who is None:
            return
        access, uid = who
        user = self._user(uid) if access is Access.READ_ONLY else None
        slots = self._slots[access]
        full = len(slots) >= MAX_CONNECTIONS
        slot = slots.take(uid, writer.transport.abort)
        if full:
            self.refused["too-many"] += 1
        if slot is None:
            return
        try:
            begun = b""
            if self._own is not None:
                begun = await reader.readexactly(len(self._own.greeting))
                if begun == self._own.greeting:
                    await self._own.serve(reader, writer)
                    return
            await self._pass_on(reader, writer, begun, access, slot, user)
        except asyncio.IncompleteReadError:
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        except OSError as error:
            _log.warning("connection failed", socket=self._path, error=str(error))
        finally:
            slots.leave(slot)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        begun: bytes,
        access: Access,
        slot: Slot,
        user: _User | None,
    ) -> None:
        async def sent(size_bytes: int) -> None:
            slot.progress()
            if user is not None:
                await user.sent_bytes.turn(size_bytes)

        async def received(_: int) -> None:
            slot.progress()

        caller = caller_of(writer.get_extra_info("socket"))
        known: list[str] = []

        def bound(name: str) -> None:
            known.append(f"unix-abstract:{name}")
            self._callers[known[0]] = caller

        backend = await self._backend(access)
        try:
            await relay(
                reader, writer, backend, begun=begun, sent=sent, received=received, bound=bound
            )
        finally:
            for each in known:
                del self._callers[each]

    def _user(self, uid: int) -> _User:
        if uid not in self._users:
            if len(self._users) >= MAX_USERS:
                self._users.clear()
            self._users[uid] = _User()
        return self._users[uid]

    async def _backend(self, access: Access) -> str:
        async with self._starting:
            if access not in self._backends:
                assert self._public is not None
                path = os.path.join(self._public.private_dir, f"{access}.sock")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                self._backends[access] = path, await self._start_backend(access, path)
            return self._backends[access][0]
