"""The gRPC message of a unary call inside the DATA of its stream (gRPC over HTTP2)."""

from __future__ import annotations

import struct
from typing import Final

MAX_MESSAGE_BYTES: Final = 16 << 20
"""What kubelet and containerd agree on."""

_PREFIX = struct.Struct(">BL")  # compressed, length
PREFIX_BYTES: Final = _PREFIX.size


def unwrap(body: bytes | bytearray) -> bytes | None:
    """None when ``body`` is not exactly one message without compression."""
    if len(body) < PREFIX_BYTES:
        return None
    compressed, length = _PREFIX.unpack_from(body)
    if compressed or length != len(body) - PREFIX_BYTES:
        return None
    return bytes(body[PREFIX_BYTES:])


def wrap(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message
