"""Bytes from an accepted connection to a private gRPC socket and back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

CHUNK_BYTES = 64 * 1024

Passed = Callable[[int], Awaitable[object]]
"""Hears how many bytes are passed on, and may hold them up."""


def _nobody(name: str) -> None:
    """Nobody wants to know."""


async def relay(
    client_reader: asyncio.StreamReader,
    client_writer: asyncio.StreamWriter,
    backend_path: str,
    *,
    sent: Passed,
    received: Passed,
    begun: bytes = b"",
    bound: Callable[[str], None] = _nobody,
) -> None:
    """Until both directions have ended. A side that stops reading stops the other's writes
    (``drain``); a half-close is passed on; both sockets are closed however it ends. ``sent``: bytes
    of the client, ``received``: bytes for it. ``begun``: what was read of the client already.

    ``bound`` hears the name by which the backend knows this connection: grpc tells a handler
    ``unix-abstract:NAME`` for its peer.
    """
    try:
        backend_reader, backend_writer = await _connect(backend_path, bound)
        backend_writer.write(begun)
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(_copy(client_reader, backend_writer, sent))
                directions.create_task(_copy(backend_reader, client_writer, received))
        except* OSError:
            pass  # a peer hung up in the middle: the end of this connection, nothing else
        finally:
            await _close(backend_writer)
    finally:
        await _close(client_writer)


async def _connect(
    path: str, bound: Callable[[str], None]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind("")  # the kernel picks an abstract name that nobody else has, unix(7) autobind
        name: bytes = sock.getsockname()
        await asyncio.get_running_loop().sock_connect(sock, path)
        bound(name.lstrip(b"\0").decode("ascii"))
        return await asyncio.open_unix_connection(sock=sock, limit=CHUNK_BYTES)
    except BaseException:
        sock.close()
        raise


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Passed) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await passed(len(data))
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    # abort, not close: close would wait for a peer that does not read its last bytes
    if not writer.is_closing():
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.2)
    writer.transport.abort()
