"""The line between koordlet's own CRI proxy and its hook server.

It carries the messages of the hook API without gRPC around them, on the same socket: whoever
begins with ``GREETING`` speaks this, whoever begins with the preface of HTTP/2 speaks gRPC. Both
have 24 bytes. The server answers with the same greeting; anything else means that it does not know
the line, as a hook server of somebody else or an older koordlet.

Afterwards each side sends frames: ``HEAD``, then the payload.

====== ===== ==========================================================
length u32   of the payload
id     u32   of the call; an answer has that of its request
code   u8    of a request, its hook in ``HOOKS``; of an answer, its status of gRPC
====== ===== ==========================================================

The payload of a request is the message of its hook, that of an answer with status OK is the
response; with another status it is text. The response says only what differs from the request: a
map has the entries that changed, ``container_resources`` is whole or absent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

GREETING: Final = b"koordlet hook line 1\r\n\r\n"
HEAD: Final = struct.Struct(">LLB")
MAX_PAYLOAD_BYTES: Final = 16 << 20

HOOKS: Final = (
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PreUpdateContainerResources",
    "PostStopContainer",
    "PreUpdatePodSandboxResources",
)
"""Their places are part of the format: new ones are appended."""


class LineError(ValueError):
    """What came is not of this line."""


class Reader:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(id, code, payload). Raises LineError."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= HEAD.size:
            length, number, code = HEAD.unpack_from(buffer, at)
            if length > MAX_PAYLOAD_BYTES:
                raise LineError(f"a payload of {length} bytes; {MAX_PAYLOAD_BYTES} is the most")
            end = at + HEAD.size + length
            if end > len(buffer):
                break
            payload = bytes(memoryview(buffer)[at + HEAD.size : end])
            at = end
            yield number, code, payload
        del buffer[:at]


def frame(number: int, code: int, payload: bytes) -> bytes:
    return HEAD.pack(len(payload), number, code) + payload
