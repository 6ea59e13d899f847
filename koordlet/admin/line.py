"""Calls of gRPC over a unix socket, one at a time.

To import grpc takes more CPU than everything else that a command does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

from hpack import Decoder, Encoder, HPACKError

from koordlet.wire import http2_frames as http2
from koordlet.wire.http2_frames import Frame, FrameReader, ProtocolError, make

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

_PREFIX = struct.Struct(">BL")  # of a message: compressed, length
_WINDOW_BYTES = 8 << 20
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
        self._reader = FrameReader(from_client=False)
        self._frames: deque[Frame] = deque()
        self._stream = -1
        self._taken_bytes = 0
        more = _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES
        window = http2.settings({http2.SETTING_INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
        self._greeting = http2.PREFACE + window + http2.window_update(0, more)
        self.is_open = True
        self.was_used = False

    def close(self) -> None:
        """Wake whoever waits on it in another thread too."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def greet(self, timeout_s: float) -> None:
        """Wait for the first word of the peer, which comes before any call. Raises CallError."""
        with _as_call_errors():
            self._wait_until(time.monotonic() + timeout_s)
            self._socket.sendall(self._greeting)
            self._greeting = b""
            self._frames.append(self._next(heard=False))

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
            with _as_call_errors():
                yield from self._call(path, message, timeout_s, deadline_s)
            ended = True
        except _RefusedError:
            ended = True
            raise
        finally:
            if not ended:
                self.close()

    def _call(
        self, path: str, message: bytes, timeout_s: float | None, deadline_s: float | None
    ) -> Iterator[bytes]:
        stream = self._stream
        head = make(
            http2.HEADERS,
            http2.END_HEADERS,
            stream,
            self._encoder.encode(_headers(path, timeout_s)),
        )
        self._wait_until(deadline_s)
        self._socket.sendall(self._greeting + head + _data(stream, message))
        self._greeting = b""
        answer, heard = bytearray(), False
        while True:
            self._wait_until(deadline_s)
            frame = self._next(heard=heard)
            if frame.stream not in (0, stream):  # what an earlier call has left
                continue
            heard |= frame.stream == stream
            if frame.kind == http2.DATA:
                answer += http2.data_of(frame)
                yield from _messages(answer)
                self._taken(stream, len(frame.raw) - http2.HEAD_BYTES)
            elif frame.kind == http2.HEADERS:
                if self._is_end(http2.header_block(frame)):
                    return
            elif frame.kind == http2.RST_STREAM:
                raise CallError(UNAVAILABLE, "it has broken off the call")
            elif frame.kind == http2.GOAWAY:
                self.is_open = False
                if http2.last_stream_of(frame) < stream:
                    raise CallError(UNAVAILABLE, "it stops", unheard=True)
            elif frame.kind in (http2.SETTINGS, http2.PING) and not frame.flags & http2.ACK:
                answered = frame.raw[http2.HEAD_BYTES :] if frame.kind == http2.PING else b""
                self._socket.sendall(make(frame.kind, http2.ACK, 0, answered))

    def _wait_until(self, deadline_s: float | None) -> None:
        left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.001)
        self._socket.settimeout(left_s)

    def _next(self, *, heard: bool) -> Frame:
        while not self._frames:
            received = self._socket.recv(1 << 18)
            if not received:
                raise CallError(UNAVAILABLE, "the connection was closed", unheard=not heard)
            self._frames.extend(self._reader.feed(received))
        return self._frames.popleft()

    def _taken(self, stream: int, size: int) -> None:
        """Let the peer send as much again."""
        self._taken_bytes += size
        if self._taken_bytes >= _WINDOW_BYTES // 4:
            updates = (http2.window_update(each, self._taken_bytes) for each in (0, stream))
            self._socket.sendall(b"".join(updates))
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


@contextlib.contextmanager
def _as_call_errors() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise CallError(INTERNAL, f"it speaks no gRPC: {error}") from None
    except TimeoutError:
        raise CallError(DEADLINE_EXCEEDED, "it takes too long") from None
    except OSError as error:
        text = error.strerror or "the connection was lost"
        raise CallError(UNAVAILABLE, text, unheard=True) from None


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
    size = http2.DATA_BYTES
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    frames = [make(http2.DATA, 0, stream, part) for part in parts[:-1]]
    return b"".join((*frames, make(http2.DATA, http2.END_STREAM, stream, parts[-1])))


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
