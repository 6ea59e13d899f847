"""A small HTTP/1.1 server for GET and HEAD, on a TCP port or a unix socket.

It answers a fixed set of paths from memory, so it needs neither routing nor bodies of requests;
everything a client may send has a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import structlog

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
IDLE_TIMEOUT_S = 75.0
"""Longer than the usual scrape interval of one minute, so that a scraper keeps its connection."""
WRITE_TIMEOUT_S = 10.0
UNIX_MODE = 0o660

_log = structlog.get_logger()


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    content_type: str


Handler = Callable[[], Awaitable[Response]]


@dataclass(frozen=True)
class Address:
    """Either ``path`` of a unix socket, or an IP address and port."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenError(Exception):
    """The address cannot be served; the text says which and why."""


def parse_address(text: str) -> Address | None:
    """``127.0.0.1:9316``, ``[::1]:9316``, ``localhost:9316``, ``unix:/path``; None for ``off``.

    The page says much about a node and asks nobody who he is, so an address that other machines
    reach must say so: ``remote:0.0.0.0:9316``. Raises ValueError.
    """
    if text == "off":
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f"{text!r}: the path of a unix socket must be absolute")
        return Address(path=path)
    host, colon, port = text.removeprefix("remote:").rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is none of 'IP:PORT', 'unix:/PATH' and 'off'")
    bare = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        raise ValueError(
            f"{text!r}: {host!r} is no IP address; write 127.0.0.1:{port} for this machine alone"
        ) from None
    if not address.is_loopback and not text.startswith("remote:"):
        raise ValueError(
            f"{text!r}: other machines can reach {bare}, and the page has no authentication; "
            f"write 127.0.0.1:{port}, or remote:{text} if that is meant"
        )
    return Address(host=bare, port=int(port))


class HttpServer:
    """``start`` raises ListenError; ``stop`` ends connections where they are."""

    def __init__(self, address: Address, routes: Mapping[str, Handler]) -> None:
        self.address = address
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Afterwards ``address.port`` is the real one where 0 was asked for."""
        try:
            sock = _unix(self.address.path) if self.address.path else _tcp(self.address)
        except OSError as error:
            raise ListenError(f"{self.address}: {os.strerror(error.errno or 0)}") from error
        if not self.address.path:
            self.address = Address(self.address.host, sock.getsockname()[1])
        self._server = await asyncio.start_server(self._accepted, sock=sock, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self.address.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.path)
        self._server = None

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), WRITE_TIMEOUT_S)
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection ends with it."""
        try:
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                await _send(writer, _plain(HTTPStatus.BAD_REQUEST), "", keep=False)
            return False
        except asyncio.LimitOverrunError:
            too_large = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            await _send(writer, too_large, "", keep=False)
            return False
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        words = request_line.split(" ")
        headers = {
            name.strip().lower(): value.strip().lower()
            for name, colon, value in (line.partition(":") for line in header_lines)
            if colon
        }
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await _send(writer, _plain(HTTPStatus.BAD_REQUEST), "", keep=False)
            return False
        method, target, version = words
        # A body is not read, and what follows it could not be told from it.
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        keep = version == "HTTP/1.1" and headers.get("connection") != "close" and not has_body
        response = await self._response(method, target.partition("?")[0])
        await _send(writer, response, method, keep=keep)
        return keep

    async def _response(self, method: str, path: str) -> Response:
        handler = self._routes.get(path)
        if handler is None:
            return _plain(HTTPStatus.NOT_FOUND, " ".join(sorted(self._routes)))
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await handler()
        except Exception:
            # Isolation boundary: a defect behind one page must not end the daemon.
            _log.exception("page failed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus, text: str = "") -> Response:
    body = f"{status.value} {status.phrase}\n{text}".rstrip("\n") + "\n"
    return Response(status.value, body.encode(), "text/plain; charset=utf-8")


async def _send(
    writer: asyncio.StreamWriter, response: Response, method: str, *, keep: bool
) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if method != "HEAD":
        writer.write(response.body)
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await writer.drain()


def _tcp(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _unix(path: str) -> socket.socket:
    """Replaces a socket nobody listens on; OSError EADDRINUSE for a live one or another file."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead_socket(path)
        sock.bind(path)
        # Nobody connects before the mode is right: start_server listens later.
        os.chmod(path, UNIX_MODE)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_dead_socket(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except FileNotFoundError:
        pass
    except ConnectionRefusedError:
        os.unlink(path)
    except BlockingIOError:
        pass  # its queue is full: alive
