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
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from koordlet.kernel.relay import CHUNK_BYTES, relay
from koordlet.kernel.unix_socket import (
    BACKLOG,
    GROUP_MODE,
    ROOT_MODE,
    Access,
    PublicSocket,
    access_of,
    group_id,
    open_public,
)

MAX_CONNECTIONS = 32
"""For each access: a busy group cannot lock root out."""
STOP_S = 0.5

_log = structlog.get_logger()


class Backend(Protocol):
    """A gRPC server that runs."""

    async def stop(self, grace: float | None) -> Any: ...


class Door:
    """``start`` raises SocketError; ``stop`` ends within a second whatever the clients do.

    ``refused`` counts connections turned away: ``credentials``, ``too-many``.
    """

    def __init__(
        self,
        path: str,
        start_backend: Callable[[Access, str], Awaitable[Backend]],
        *,
        private: str,
        group: str | None,
    ) -> None:
        """``start_backend(access, path)`` serves what callers of this kind may do on a private
        socket. ``private``: see ``open_public``. ``group`` (a name; empty: the daemon's own) has
        Access.READ_ONLY; None: root alone comes in."""
        self._path = path
        self._start_backend = start_backend
        self._private = private
        self._group = group
        self._public: PublicSocket | None = None
        self._listener: asyncio.Server | None = None
        self._backends: dict[Access, tuple[str, Backend]] = {}
        self._starting = asyncio.Lock()
        self._connections: dict[asyncio.Task[None], Access] = {}
        self.refused: Counter[str] = Counter()

    async def start(self) -> None:
        gid = group_id(self._group) if self._group else None
        mode = ROOT_MODE if self._group is None else GROUP_MODE
        self._public = open_public(self._path, gid, private=self._private, mode=mode)
        self._listener = await asyncio.start_unix_server(
            self._accepted, sock=self._public.sock, limit=CHUNK_BYTES, backlog=BACKLOG
        )

    async def stop(self) -> None:
        if self._listener is None or self._public is None:
            return
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(
            *(server.stop(STOP_S) for _, server in self._backends.values()),
            *self._connections,
            return_exceptions=True,
        )
        for path, _ in self._backends.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._backends.clear()
        self._public.close()
        self._listener = self._public = None

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._public is not None
        access = access_of(writer.get_extra_info("socket"), self._public.gid)
        if access is Access.NONE or (self._group is None and access is not Access.FULL):
            self.refused["credentials"] += 1
            writer.transport.abort()
            return
        if sum(other is access for other in self._connections.values()) >= MAX_CONNECTIONS:
            self.refused["too-many"] += 1
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = access
        try:
            await relay(reader, writer, await self._backend(access))
        except asyncio.CancelledError:
            writer.transport.abort()
        except OSError as error:
            _log.warning("connection failed", socket=self._path, error=str(error))
            writer.transport.abort()
        finally:
            del self._connections[task]

    async def _backend(self, access: Access) -> str:
        async with self._starting:
            if access not in self._backends:
                assert self._public is not None
                path = os.path.join(self._public.private_dir, f"{access}.sock")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                self._backends[access] = path, await self._start_backend(access, path)
            return self._backends[access][0]
