"""Calls of gRPC over a unix socket, one at a time.

To import grpc takes more CPU than everything else that a command does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Generator, Iterator
from typing import Final

from hpack import Decoder, Encoder, HPACKError

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
"""Status codes of gRPC."""
NAMES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
"""Their names, in order."""
_STATUSES = {str(status).encode(): status for status in range(len(NAMES))}

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0x0, 0x1, 0x3, 0x4
_PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0x6, 0x7, 0x8, 0x9
"""Types of frames (RFC 9113 section 6)."""
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _HAS_PRIORITY = 0x4, 0x8, 0x20
_INITIAL_WINDOW_SIZE = 0x4
_HEAD = struct.Struct(">BHBBL")  # length (8 + 16 bits), type, flags, stream
_SETTING = struct.Struct(">HL")
_PREFIX = struct.Struct(">BL")  # of a message: compressed, length
_DEFAULT_WINDOW_BYTES = 65535
_WINDOW_BYTES = 8 << 20
_FRAME_BYTES = 16384
MAX_BLOCK_BYTES = 1 << 20
_MAX_TABLE_BYTES = 1 << 20
MAX_REQUEST_BYTES = 60_000
"""Less than the window with which a connection begins, and than the daemon takes."""


class CallError(Exception):
    """A call ended with a status other than ``OK``. ``unheard``: the peer has answered nothing."""

    def __init__(self, status: int, text: str, *, unheard: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.unheard = unheard


class _RefusedError(CallError):
    """The peer has answered, and may be asked again."""


class Line:
    """Takes a connected socket, and closes it after a call that did not end well."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._encoder = Encoder()
        self._decoder = Decoder(_MAX_TABLE_BYTES)
        self._bytes = bytearray()
        self._stream = -1
        self._taken_bytes = 0
        more = _WINDOW_BYTES - _DEFAULT_WINDOW_BYTES
        self._greeting = b"".join(
            (
                _PREFACE,
                _frame(_SETTINGS, 0, 0, _SETTING.pack(_INITIAL_WINDOW_SIZE, _WINDOW_BYTES)),
                _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">L", more)),
            )
        )
        self.is_open = True
        self.was_used = False

    def close(self) -> None:
        """Wake whoever waits on it in another thread too."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def call(
        self, path: str, message: bytes, timeout_s: float | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the messages of the answer. Raises CallError."""
        if len(message) > MAX_REQUEST_BYTES:
            raise CallError(INVALID_ARGUMENT, f"more than {MAX_REQUEST_BYTES} bytes are asked for")
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._stream += 2
        self.was_used = True
        ended = False
        try:
            yield from self._call(path, message, timeout_s, deadline_s)
            ended = True
        except _RefusedError:
            ended = True
            raise
        except TimeoutError:
            raise CallError(DEADLINE_EXCEEDED, "it takes too long") from None
        except OSError as error:
            text = error.strerror or "the connection was lost"
            raise CallError(UNAVAILABLE, text, unheard=True) from None
        finally:
            if not ended:
                self.close()

    def _call(
        self, path: str, message: bytes, timeout_s: float | None, deadline_s: float | None
    ) -> Iterator[bytes]:
        stream = self._stream
        head = self._encoder.encode(_headers(path, timeout_s))
        self._wait_until(deadline_s)
        self._socket.sendall(
            self._greeting + _frame(_HEADERS, _END_HEADERS, stream, head) + _data(stream, message)
        )
        self._greeting = b""
        answer, block, heard = bytearray(), bytearray(), False
        while True:
            self._wait_until(deadline_s)
            kind, flags, about, payload = self._read(heard=heard)
            if about not in (0, stream):  # what an earlier call has left
                continue
            heard |= about == stream
            if kind == _DATA:
                answer += _content(flags, payload)
                yield from _messages(answer)
                self._take(stream, len(payload))
            elif kind in (_HEADERS, _CONTINUATION):
                block += _content(flags, payload) if kind == _HEADERS else payload
                if len(block) > MAX_BLOCK_BYTES:
                    raise CallError(INTERNAL, "its headers are too long")
                if flags & _END_HEADERS:
                    if self._is_end(bytes(block)):
                        return
                    block.clear()
            elif kind == _SETTINGS and not flags & _ACK:
                self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                self._socket.sendall(_frame(_PING, _ACK, 0, payload))
            elif kind == _RST_STREAM:
                raise CallError(UNAVAILABLE, "it has broken off the call")
            elif kind == _GOAWAY:
                self.is_open = False
                if int.from_bytes(payload[:4], "big") < stream:
                    raise CallError(UNAVAILABLE, "it stops", unheard=True)

    def _wait_until(self, deadline_s: float | None) -> None:
        left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.001)
        self._socket.settimeout(left_s)

    def _read(self, *, heard: bool) -> tuple[int, int, int, bytes]:
        """Return type, flags, stream and payload of the next frame."""
        self._fill(_HEAD.size, heard=heard)
        high, low, kind, flags, stream = _HEAD.unpack_from(self._bytes)
        size = _HEAD.size + (high << 16 | low)
        if size > _HEAD.size + _FRAME_BYTES:
            raise CallError(INTERNAL, "it speaks no gRPC")
        self._fill(size, heard=heard)
        payload = bytes(self._bytes[_HEAD.size : size])
        del self._bytes[:size]
        return kind, flags, stream & 0x7FFFFFFF, payload

    def _fill(self, size: int, *, heard: bool) -> None:
        while len(self._bytes) < size:
            received = self._socket.recv(1 << 18)
            if not received:
                raise CallError(UNAVAILABLE, "the connection was closed", unheard=not heard)
            self._bytes += received

    def _take(self, stream: int, size: int) -> None:
        """Let the peer send as much again."""
        self._taken_bytes += size
        if self._taken_bytes >= _WINDOW_BYTES // 4:
            more = struct.pack(">L", self._taken_bytes)
            frames = (_frame(_WINDOW_UPDATE, 0, each, more) for each in (0, stream))
            self._socket.sendall(b"".join(frames))
            self._taken_bytes = 0

    def _is_end(self, block: bytes) -> bool:
        """Return whether the call has ended well. Raises CallError where it ended otherwise."""
        try:
            found = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, True)}
        except (HPACKError, IndexError) as error:
            raise CallError(INTERNAL, f"headers: {error}") from None
        text = found.get(b"grpc-status")
        if text is None:
            if found.get(b":status") != b"200":
                raise CallError(UNKNOWN, "it speaks no gRPC")
            return False
        status = _STATUSES.get(text, UNKNOWN)
        if status != OK:
            raise _RefusedError(status, _unquoted(found.get(b"grpc-message", b"")))
        return True


def _headers(path: str, timeout_s: float | None) -> list[tuple[str, str]]:
    found = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    if timeout_s is not None:
        found.append(("grpc-timeout", f"{max(int(1000 * timeout_s), 1)}m"))
    return found


def _data(stream: int, message: bytes) -> bytes:
    """Return the only message of a request."""
    content = _PREFIX.pack(0, len(message)) + message
    parts = [content[at : at + _FRAME_BYTES] for at in range(0, len(content), _FRAME_BYTES)]
    frames = [_frame(_DATA, 0, stream, part) for part in parts[:-1]]
    return b"".join((*frames, _frame(_DATA, _END_STREAM, stream, parts[-1])))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def _content(flags: int, payload: bytes) -> bytes:
    """Return the payload of DATA or HEADERS without padding and priority."""
    padding = 0
    if flags & _PADDED:
        padding, payload = payload[0], payload[1:]
    if flags & _HAS_PRIORITY:
        payload = payload[5:]
    return payload[: len(payload) - padding]


def _messages(answer: bytearray) -> Iterator[bytes]:
    """Take whole messages out of ``answer``."""
    while len(answer) >= _PREFIX.size:
        compressed, length = _PREFIX.unpack_from(answer)
        end = _PREFIX.size + length
        if compressed:
            raise CallError(INTERNAL, "a compressed message, which was not asked for")
        if len(answer) < end:
            return
        message = bytes(answer[_PREFIX.size : end])
        del answer[:end]
        yield message


def _unquoted(message: bytes) -> str:
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(message).decode(errors="replace")
