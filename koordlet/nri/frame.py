"""Frames of ttrpc (docs/reference/wire.md 1.1): ten bytes of header, then the payload."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct(">IIBB")  # length of the payload, stream id, type, flags
MAX_PAYLOAD_BYTES = 4 << 20
"""Most that is sent."""
MAX_RECEIVED_BYTES = 16 << 20
"""containerd before 1.7.26 tells all pods of the node in one message, and does not look how long
it is; the multiplexer of such a runtime ends a connection above 16 MiB."""

REQUEST = 1
RESPONSE = 2
DATA = 3


class Frame(NamedTuple):
    """``payload`` None: it was ``length`` bytes, more than is received, and was skipped."""

    stream: int
    kind: int
    flags: int
    length: int
    payload: bytes | None


def encode(stream: int, kind: int, payload: bytes) -> bytes:
    """The caller has checked the length. Unary calls have no flags."""
    return HEADER.pack(len(payload), stream, kind, 0) + payload


class Decoder:
    """Bytes of one connection -> frames; keeps at most one unfinished frame."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._payload = bytearray()
        self._left = -1  # of the payload; -1: in the header
        self._fields = (0, 0, 0, 0)

    def feed(self, data: memoryview) -> Iterator[Frame]:
        while data or self._left == 0:
            if self._left < 0:
                missing = HEADER.size - len(self._header)
                self._header += data[:missing]
                data = data[missing:]
                if len(self._header) == HEADER.size:
                    self._fields = HEADER.unpack(self._header)
                    self._left = self._fields[0]
                    self._header.clear()
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            length, stream, kind, flags = self._fields
            fits = length <= MAX_RECEIVED_BYTES
            if fits:
                self._payload += part
            if self._left == 0:
                self._left = -1
                payload = bytes(self._payload) if fits else None
                self._payload = bytearray()
                yield Frame(stream, kind, flags, length, payload)
