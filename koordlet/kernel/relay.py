"""Bytes from an accepted connection to a private gRPC socket and back."""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 64 * 1024


async def relay(
    client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter, backend_path: str
) -> None:
    """Until both directions have ended. A side that stops reading stops the other's writes
    (``drain``); a half-close is passed on; both sockets are closed however it ends."""
    try:
        backend_reader, backend_writer = await asyncio.open_unix_connection(
            backend_path, limit=CHUNK_BYTES
        )
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(_copy(client_reader, backend_writer))
                directions.create_task(_copy(backend_reader, client_writer))
        except* OSError:
            pass  # a peer hung up in the middle: the end of this connection, nothing else
        finally:
            await _close(backend_writer)
    finally:
        await _close(client_writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
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
