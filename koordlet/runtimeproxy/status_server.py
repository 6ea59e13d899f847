"""The status socket: ``/status`` as JSON and ``/metrics``, over HTTP/1, for root alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final

from koordlet.serving.unix_socket import SOCKET_STAYS

DEFAULT_SOCKET: Final = "/run/koord-runtimeproxy/status.sock"
_REQUEST_S: Final = 5.0
_MAX_HEAD_BYTES: Final = 8192

Pages = Mapping[str, tuple[str, Callable[[], bytes]]]
"""Path -> (content type, body)."""


async def serve(sock: socket.socket, pages: Pages) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
            writer.write(_response(head, pages))
            await asyncio.wait_for(writer.drain(), _REQUEST_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a caller that went away or sends no request is owed no answer
        finally:
            writer.close()

    return await asyncio.start_unix_server(answer, sock=sock, limit=_MAX_HEAD_BYTES, **SOCKET_STAYS)


def _response(head: bytes, pages: Pages) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    if method != b"GET":
        return _reply("405 Method Not Allowed", "text/plain", b"only GET\n")
    if path not in pages:
        known = " ".join(sorted(pages))
        return _reply("404 Not Found", "text/plain", f"there is: {known}\n".encode())
    kind, body = pages[path]
    return _reply("200 OK", kind, body())


def _reply(status: str, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
