"""Netlink (netlink(7)): requests, dumps and batches of pyroute2's messages, on a blocking socket.

pyroute2's own sockets do not serve here. Their calls run an event loop, so they fail in a thread
that has one, as the daemon's does when it restores. They wait without a limit, return a dump that
was interrupted as if it were whole, and send a batch of nftables without waiting for its errors.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

ROUTE = socket.NETLINK_ROUTE
NETFILTER = 12
"""Families: traffic control and links, nftables."""

REQUEST, ACK, DUMP = 0x001, 0x004, 0x300
EXCL, CREATE, APPEND = 0x200, 0x400, 0x800

Attributes = list[tuple[str, Any]]
"""(name, value), as pyroute2 has them. Encoded messages keep the list, so it is made anew for
each."""
Content = dict[str, Any]
"""Fields of a message by name, and its ``attrs``."""

_NOOP, _ERROR, _DONE = 1, 2, 3
_DUMP_INTERRUPTED = 0x010
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_HEADER = struct.Struct("=IHHII")
_RECEIVE_BYTES = 1 << 17
_TIMEOUT_S = 10.0
_DUMP_TRIES = 5


class Socket:
    """A connection to one family. Every call blocks until the kernel has answered, and raises
    OSError with its errno; ``filename`` is ``what`` and, where the kernel says more, its text."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self._socket.settimeout(_TIMEOUT_S)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._socket.bind((0, 0))
        # Here, because it imports pyroute2: in the thread that divides the network, if ever.
        from koordlet.kernel.net import messages

        self._classes = messages.MESSAGES[family]
        self._error_class = messages.ErrorMessage
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def request(self, kind: int, content: Content, what: str, flags: int = 0) -> None:
        self.batch(((kind, flags | ACK, content),), what)

    def batch(
        self,
        messages: Sequence[tuple[int, int, Content]],
        what: str,
        end: tuple[int, int, Content] | None = None,
    ) -> None:
        """Send (kind, flags, content) at once; the last must ask for an ACK, ``end`` behind it
        must not. The first error counts."""
        first = self._sequence + 1
        data = b"".join(self._message(*message) for message in messages)
        last = self._sequence
        if end is not None:
            data += self._message(*end)
        self._socket.send(data)
        error: OSError | None = None
        sequence = -1
        while sequence != last:
            for kind, sequence, _, answer, at in self._receive():
                if kind == _ERROR and first <= sequence <= last:
                    error = error or self._error_of(answer, at, what)
                    if error is not None and sequence == first:
                        sequence = last
        if error is not None:
            raise error

    def dump(self, kind: int, content: Content, what: str) -> Iterator[Any]:
        """All answers. Each is decoded when it is its turn: 400 at once would take 14 MiB."""
        for _ in range(_DUMP_TRIES):
            self._socket.send(self._message(kind, DUMP, content))
            found, whole = self._answers(what)
            if whole:
                return (self._decoded(*each) for each in found)
        raise InterruptedError(f"{what}: changed during each of {_DUMP_TRIES} attempts to list it")

    def _answers(self, what: str) -> tuple[list[tuple[int, bytes, int]], bool]:
        """(kind, data, where in it) of each. The second is False where something changed while
        the kernel listed it."""
        found: list[tuple[int, bytes, int]] = []
        whole = True
        while True:
            for kind, sequence, flags, data, at in self._receive():
                if sequence != self._sequence:
                    continue
                whole = whole and not flags & _DUMP_INTERRUPTED
                if kind == _DONE:
                    return found, whole
                if kind == _ERROR:
                    error = self._error_of(data, at, what)
                    if error is not None:
                        raise error
                    return found, whole
                if kind != _NOOP:
                    found.append((kind, data, at))

    def _decoded(self, kind: int, data: bytes, at: int) -> Any:
        message = self._classes[kind](data, offset=at)
        message.decode()
        return message

    def _message(self, kind: int, flags: int, content: Content) -> bytes:
        self._sequence += 1
        message = self._classes[kind]()
        message.update(content)
        message["header"].update(type=kind, flags=flags | REQUEST, sequence_number=self._sequence)
        message.encode()
        return bytes(message.data)

    def _receive(self) -> Iterator[tuple[int, int, int, bytes, int]]:
        """(kind, sequence, flags, data, where in it) of each message that has come."""
        data = self._socket.recv(_RECEIVE_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            size, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
            if not _HEADER.size <= size <= len(data) - at:
                raise ValueError(f"netlink message of {size} bytes at {at} of {len(data)}")
            yield kind, sequence, flags, data, at
            at += size + -size % 4

    def _error_of(self, data: bytes, at: int, what: str) -> OSError | None:
        message = self._error_class(data, offset=at)
        message.decode()
        code = -message["error"]
        if not code:
            return None
        text = str(message.get_attr("NLMSGERR_ATTR_MSG", "")).strip()
        return OSError(code, os.strerror(code), f"{what} ({text})" if text else what)
