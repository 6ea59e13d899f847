"""A small HTTP/1.1 server for GET and HEAD, on a TCP port or a unix socket.

It answers a fixed set of paths from memory, so it needs neither routing nor bodies of requests;
everything a client may send has a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import structlog

from koordlet.serving.listener import Listener, Pace, Slot, Slots
from koordlet.serving.unix_socket import make_run_dir

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
RESERVE = 8
BACKLOG = 64
IDLE_TIMEOUT_S = 75.0
"""Longer than the usual scrape interval of one minute, so that a scraper keeps its connection."""
HEAD_TIMEOUT_S = 5.0
"""From the first byte of a request to its last, and from a connection to its first request."""
WRITE_TIMEOUT_S = 10.0
STALLED_S = 1.0
"""A client that has read nothing for so long counts as idle."""
CHUNK_BYTES = 64 * 1024
REQUESTS_PER_S = 50.0
"""In the long run, of all clients together; health has as many again."""
REQUESTS_BURST = 100
UNIX_MODE = 0o660

_log = structlog.get_logger()


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    content_type: str
    encoding: str = ""


Handler = Callable[[Mapping[str, str]], Awaitable[Response]]
"""Takes the headers of the request, names and values in lower case."""


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
    """``start`` raises ListenError; ``stop`` ends connections where they are.

    ``urgent``: paths that are answered in any case: when ``MAX_CONNECTIONS`` are being answered,
    ``RESERVE`` more may ask for those, and nothing else.
    """

    def __init__(
        self, address: Address, routes: Mapping[str, Handler], urgent: Collection[str] = ()
    ) -> None:
        self.address = address
        self._routes = routes
        self._urgent = frozenset(urgent)
        self._listener: Listener | None = None
        self._slots = Slots(MAX_CONNECTIONS)
        self._reserve = Slots(RESERVE)
        self._pace = Pace(REQUESTS_PER_S, REQUESTS_BURST)
        self._urgent_pace = Pace(REQUESTS_PER_S, REQUESTS_BURST)
        self._slow = self._turned_away = 0

    async def start(self) -> None:
        """Afterwards ``address.port`` is the real one where 0 was asked for."""
        try:
            sock = _unix(self.address.path) if self.address.path else _tcp(self.address)
            if not self.address.path:
                self.address = Address(self.address.host, sock.getsockname()[1])
            self._listener = Listener(
                sock, self._accepted, limit_bytes=MAX_HEAD_BYTES, backlog=BACKLOG
            )
        except OSError as error:
            raise ListenError(f"{self.address}: {os.strerror(error.errno or 0)}") from error

    async def stop(self) -> None:
        if self._listener is None:
            return
        await self._listener.stop()
        if self.address.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.path)
        self._listener = None

    @property
    def dropped(self) -> Mapping[str, int]:
        """Reason -> connections that were ended for it: ``idle``, because another needed the
        place; ``slow``, because its client did not send or read in time; ``full``, because every
        place was in use."""
        return {
            "idle": self._slots.dropped + self._reserve.dropped,
            "slow": self._slow,
            "full": self._turned_away,
        }

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slots, slot = self._slots, self._slots.take(None, writer.transport.abort)
        if slot is None:
            slots, slot = self._reserve, self._reserve.take(None, writer.transport.abort)
        if slot is None:
            self._turned_away += 1
            return
        reserved = slots is self._reserve
        writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)
        try:
            first = True
            while await self._serve_one(reader, writer, slot, first=first, reserved=reserved):
                first = False
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), WRITE_TIMEOUT_S)
        except TimeoutError:
            self._slow += 1
        finally:
            slots.leave(slot)

    async def _serve_one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        slot: Slot,
        *,
        first: bool,
        reserved: bool,
    ) -> bool:
        """Answer one request; False when the connection ends with it. Raises TimeoutError."""
        try:
            head = await _head(reader, HEAD_TIMEOUT_S if first else IDLE_TIMEOUT_S)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                await _send(writer, _plain(HTTPStatus.BAD_REQUEST), "", slot, keep=False)
            return False
        except asyncio.LimitOverrunError:
            too_large = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            await _send(writer, too_large, "", slot, keep=False)
            return False
        if not head:
            if first:
                raise TimeoutError
            return False
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        words = request_line.split(" ")
        headers = {
            name.strip().lower(): value.strip().lower()
            for name, colon, value in (line.partition(":") for line in header_lines)
            if colon
        }
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await _send(writer, _plain(HTTPStatus.BAD_REQUEST), "", slot, keep=False)
            return False
        method, target, version = words
        path = target.partition("?")[0]
        urgent = path in self._urgent
        # A body is not read, and what follows it could not be told from it.
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        keep = version == "HTTP/1.1" and headers.get("connection") != "close" and not has_body
        keep = keep and not reserved
        slot.progress()
        await (self._urgent_pace if urgent else self._pace).turn()
        slot.progress(spare_s=math.inf)
        if reserved and not urgent:
            response = _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
        else:
            response = await self._response(method, path, headers)
        await _send(writer, response, method, slot, keep=keep)
        return keep

    async def _response(self, method: str, path: str, headers: Mapping[str, str]) -> Response:
        handler = self._routes.get(path)
        if handler is None:
            return _plain(HTTPStatus.NOT_FOUND, " ".join(sorted(self._routes)))
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await handler(headers)
        except Exception:
            # Isolation boundary: a defect behind one page must not end the daemon.
            _log.exception("page failed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus, text: str = "") -> Response:
    body = f"{status.value} {status.phrase}\n{text}".rstrip("\n") + "\n"
    return Response(status.value, body.encode(), "text/plain; charset=utf-8")


async def _head(reader: asyncio.StreamReader, begin_s: float) -> bytes:
    """The head of a request; empty when none has begun within ``begin_s``. Raises TimeoutError for
    one that does not end, and what ``StreamReader.readuntil`` raises."""
    try:
        async with asyncio.timeout(begin_s):
            begin = await reader.readexactly(1)
    except TimeoutError:
        return b""
    async with asyncio.timeout(HEAD_TIMEOUT_S):
        try:
            return begin + await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise asyncio.IncompleteReadError(begin + error.partial, None) from None


async def _send(
    writer: asyncio.StreamWriter, response: Response, method: str, slot: Slot, *, keep: bool
) -> None:
    """In pieces, so that a client that reads slowly costs one piece of memory. It has made progress
    when a piece has gone. Raises TimeoutError."""
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if response.encoding:
        lines.append(f"Content-Encoding: {response.encoding}")
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        body = memoryview(response.body if method != "HEAD" else b"")
        for start in range(0, len(body), CHUNK_BYTES):
            slot.progress(spare_s=STALLED_S)
            writer.write(body[start : start + CHUNK_BYTES])
            await writer.drain()
    slot.progress()


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
        make_run_dir(os.path.dirname(path))
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
