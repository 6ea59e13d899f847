"""The gRPC message of a unary call inside the DATA of its stream (gRPC over HTTP2)."""

from __future__ import annotations

import struct
from typing import Final

from koordlet.runtimeproxy.contract import Refusal
from koordlet.runtimeproxy.http2.headers import GRPC_INTERNAL, GRPC_UNIMPLEMENTED

MAX_MESSAGE_BYTES: Final = 16 << 20
"""What kubelet and containerd agree on."""

_PREFIX = struct.Struct(">BL")  # compressed, length
PREFIX_BYTES: Final = _PREFIX.size

# A runtime may run the first message of several, and read a compressed one: then a pod would start
# without the hooks that were to see it.
_COMPRESSED = Refusal(
    GRPC_UNIMPLEMENTED,
    "koordlet runtime-proxy: a compressed request cannot be shown to hooks; send it uncompressed",
)
_NOT_ONE = Refusal(
    GRPC_INTERNAL, "koordlet runtime-proxy: a unary call has exactly one message; this is not one"
)


def only(body: bytes | bytearray) -> bytes | Refusal:
    """The message of a request, or why there is none."""
    if len(body) < PREFIX_BYTES:
        return _NOT_ONE
    compressed, length = _PREFIX.unpack_from(body)
    if compressed:
        return _COMPRESSED
    if length != len(body) - PREFIX_BYTES:
        return _NOT_ONE
    with memoryview(body) as view:
        return bytes(view[PREFIX_BYTES:])


def size_of(body: bytes | bytearray) -> int:
    """Of the whole message with its prefix, as far as ``body`` tells."""
    if len(body) < PREFIX_BYTES:
        return len(body)
    length: int = _PREFIX.unpack_from(body)[1]
    return max(PREFIX_BYTES + length, len(body))


def unwrap(body: bytes | bytearray) -> bytes | None:
    """The message of a response; None when ``body`` is not exactly one without compression."""
    found = only(body)
    return None if isinstance(found, Refusal) else found


def wrap(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message
