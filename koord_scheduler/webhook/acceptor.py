"""Connections as bare sockets: whoever takes them decides before asyncio spends anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from koord_scheduler.webhook.turns import Peer
from koordlet.serving.listener import NO_DESCRIPTORS_S

_BACKLOG, _ACCEPTED_AT_ONCE = 1024, 16
_log = structlog.get_logger()


class Acceptor:
    """Gives each connection to ``take``, some at a time between other work of the loop."""

    def __init__(self, take: Callable[[socket.socket, Peer], None]) -> None:
        self._take = take
        self._sock: socket.socket | None = None

    def open(self, host: str, port: int, defer_s: int = 0) -> int:
        """Begin to accept. ``host`` empty: every address of the machine. ``defer_s``: so long the
        kernel keeps to itself who says nothing. Returns the port. Raises OSError where the address
        cannot be had."""
        both = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
        self._sock = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
        self._sock.setblocking(False)
        if defer_s:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, defer_s)
        self._listen()
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    def _listen(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._sock is None:
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it hung up while it waited
            except OSError as error:
                _log.warning("connections are not accepted", error=str(error))
                loop.remove_reader(self._sock)
                loop.call_later(NO_DESCRIPTORS_S, self._listen)
                return
            sock.setblocking(False)
            self._take(sock, Peer(str(address[0])))
