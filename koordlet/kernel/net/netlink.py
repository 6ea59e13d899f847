"""Netlink (netlink(7)): requests, dumps, batches, and the attributes inside them.

Written out instead of taken from pyroute2, whose import costs 11 MiB, whose calls need an event
loop of their own, and whose nftables part knows neither ``socket cgroupv2`` nor errors of a batch.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence

ROUTE = 0
NETFILTER = 12
"""Families: traffic control and links, nftables."""

REQUEST, ACK, DUMP = 0x001, 0x004, 0x300
REPLACE, EXCL, CREATE, APPEND = 0x100, 0x200, 0x400, 0x800

_NOOP, _ERROR, _DONE = 1, 2, 3
_MULTI, _DUMP_INTERRUPTED, _ACK_HAS_ATTRIBUTES = 0x002, 0x010, 0x200
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_NESTED, _TYPE_MASK = 0x8000, 0x3FFF
_ERROR_TEXT = 1
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 17
_TIMEOUT_S = 10.0
_DUMP_TRIES = 5


def attribute(kind: int, data: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


def nested(kind: int, *inner: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(inner))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, content), in order. Raises ValueError for what is cut off."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= len(data) - at:
            raise ValueError(f"netlink attribute of {length} bytes at {at} of {len(data)}")
        yield kind & _TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += length + -length % 4


def attributes(data: bytes) -> dict[int, bytes]:
    return dict(each_attribute(data))


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
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def request(self, kind: int, payload: bytes, what: str, flags: int = 0) -> None:
        self.batch(((kind, flags | ACK, payload),), what)

    def batch(
        self,
        messages: Sequence[tuple[int, int, bytes]],
        what: str,
        end: tuple[int, int, bytes] | None = None,
    ) -> None:
        """Send (kind, flags, payload) at once; the last must ask for an ACK, ``end`` behind it
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
            for kind, sequence, flags, payload in self._receive():
                if kind == _ERROR and first <= sequence <= last:
                    error = error or _error_of(payload, flags, what)
                    if error is not None and sequence == first:
                        sequence = last
        if error is not None:
            raise error

    def dump(self, kind: int, payload: bytes, what: str) -> list[bytes]:
        """The payloads of all answers."""
        for _ in range(_DUMP_TRIES):
            self._socket.send(self._message(kind, DUMP, payload))
            found, whole = self._answers(what)
            if whole:
                return found
        raise InterruptedError(f"{what}: changed during each of {_DUMP_TRIES} attempts to list it")

    def _answers(self, what: str) -> tuple[list[bytes], bool]:
        """The second is False where something changed while the kernel listed it."""
        found: list[bytes] = []
        whole = True
        while True:
            for kind, sequence, flags, payload in self._receive():
                if sequence != self._sequence:
                    continue
                whole = whole and not flags & _DUMP_INTERRUPTED
                if kind == _DONE:
                    return found, whole
                if kind == _ERROR:
                    error = _error_of(payload, flags, what)
                    if error is not None:
                        raise error
                    return found, whole
                if kind != _NOOP:
                    found.append(payload)

    def _message(self, kind: int, flags: int, payload: bytes) -> bytes:
        self._sequence += 1
        size = _HEADER.size + len(payload)
        header = _HEADER.pack(size, kind, flags | REQUEST, self._sequence, 0)
        return header + payload + bytes(-size % 4)

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        data = self._socket.recv(_RECEIVE_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            size, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
            if not _HEADER.size <= size <= len(data) - at:
                raise ValueError(f"netlink message of {size} bytes at {at} of {len(data)}")
            yield kind, sequence, flags, data[at + _HEADER.size : at + size]
            at += size + -size % 4


def _error_of(payload: bytes, flags: int, what: str) -> OSError | None:
    (code,) = struct.unpack_from("=i", payload)
    if not code:
        return None
    said = b""
    if flags & _ACK_HAS_ATTRIBUTES:
        said = attributes(payload[4 + _HEADER.size :]).get(_ERROR_TEXT, b"")
    words = said.rstrip(b"\0").decode(errors="replace").strip()
    return OSError(-code, os.strerror(-code), f"{what} ({words})" if words else what)
