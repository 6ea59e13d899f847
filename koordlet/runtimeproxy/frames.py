"""HTTP/2 frames (RFC 9113 section 4): taken apart without being changed, and made."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9
CLIENT_PREFACE: Final = -1
"""Not a frame: the bytes every client begins with, handed out as the first one."""

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
FLOW_CONTROL_ERROR: Final = 0x3
FRAME_SIZE_ERROR: Final = 0x6
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

SETTING_HEADER_TABLE_SIZE: Final = 0x1
SETTING_INITIAL_WINDOW_SIZE: Final = 0x4

DEFAULT_WINDOW_BYTES: Final = 65535
MAX_WINDOW_BYTES: Final = 2**31 - 1
DATA_BYTES: Final = 16384
"""What every peer must take in one frame (SETTINGS_MAX_FRAME_SIZE is never below)."""
MAX_HEADER_BLOCK_BYTES: Final = 1 << 20

HEAD_BYTES: Final = 9
_HEAD = struct.Struct(">BHBBL")  # length (8 + 16 bits), type, flags, stream
_U32 = struct.Struct(">L")
_SETTING = struct.Struct(">HL")
_GOAWAY = struct.Struct(">LL")
_STREAM_MASK = 2**31 - 1


class ProtocolError(Exception):
    """A peer broke HTTP/2; its connection ends with ``code`` (RFC 9113 section 7)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """``raw``: as it came, with its head; a view of what was read, because large DATA is not worth
    a copy. A header block that was continued is one frame here, of
    all its bytes, because nothing may come between its parts."""

    kind: int
    flags: int
    stream: int
    raw: bytes | memoryview


class FrameReader:
    """Bytes of one direction in, whole frames out."""

    def __init__(self, *, from_client: bool) -> None:
        self._buffer = bytearray()
        self._needed = 0
        self._preface = from_client
        self._block: Frame | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Raises ProtocolError; the frames before the fault have been handed out then."""
        source: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            source, self._buffer = self._buffer, bytearray()
        offset, end = 0, len(source)
        if self._preface:
            if not PREFACE.startswith(source[: len(PREFACE)]):
                raise ProtocolError(PROTOCOL_ERROR, "the client does not speak HTTP/2")
            if end < len(PREFACE):
                self._keep(source, 0, len(PREFACE))
                return
            self._preface = False
            offset = len(PREFACE)
            yield Frame(CLIENT_PREFACE, 0, 0, PREFACE)
        view = memoryview(source)
        while end - offset >= HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(source, offset)
            after = offset + HEAD_BYTES + (high << 16 | low)
            if after > end:
                self._keep(source, offset, after - offset)
                return
            raw = view[offset:after]
            offset = after
            frame = Frame(kind, flags, stream & _STREAM_MASK, raw)
            if self._block is not None or kind in _BLOCK_KINDS:
                whole = self._join(frame._replace(raw=bytes(raw)))
                if whole is None:
                    continue
                frame = whole
            yield frame
        self._keep(source, offset, HEAD_BYTES)

    def _keep(self, source: bytes | bytearray, offset: int, needed: int) -> None:
        self._buffer = bytearray(source[offset:])
        self._needed = needed

    def _join(self, frame: Frame) -> Frame | None:
        """The whole header block once its last part is there."""
        begun = self._block
        if begun is None:
            if frame.kind == CONTINUATION:
                raise ProtocolError(PROTOCOL_ERROR, "CONTINUATION without a header block")
            joined = frame
        else:
            if frame.kind != CONTINUATION or frame.stream != begun.stream:
                raise ProtocolError(PROTOCOL_ERROR, "another frame inside a header block")
            if len(begun.raw) + len(frame.raw) > MAX_HEADER_BLOCK_BYTES:
                raise ProtocolError(ENHANCE_YOUR_CALM, "header block above 1 MiB")
            joined = begun._replace(raw=bytes(begun.raw) + frame.raw)
        if frame.flags & END_HEADERS:
            self._block = None
            return joined._replace(flags=joined.flags | END_HEADERS)
        self._block = joined
        return None


_BLOCK_KINDS = frozenset((HEADERS, PUSH_PROMISE, CONTINUATION))


def data_of(frame: Frame) -> bytes | memoryview:
    """Payload of a DATA frame without its padding. Raises ProtocolError."""
    payload = frame.raw[HEAD_BYTES:]
    return _without_padding(payload) if frame.flags & PADDED else payload


def header_block(frame: Frame) -> bytes:
    """The compressed headers of HEADERS or PUSH_PROMISE with all continuations.

    Raises ProtocolError.
    """
    raw = bytes(frame.raw)
    after = HEAD_BYTES + _length(raw, 0)
    block = raw[HEAD_BYTES:after]
    if frame.flags & PADDED:
        block = bytes(_without_padding(block))
    skip = 4 if frame.kind == PUSH_PROMISE else 5 if frame.flags & HAS_PRIORITY else 0
    if len(block) < skip:
        raise ProtocolError(FRAME_SIZE_ERROR, "HEADERS too short for its flags")
    block = block[skip:]
    while after < len(raw):
        begin = after + HEAD_BYTES
        after = begin + _length(raw, after)
        block += raw[begin:after]
    return block


def settings_of(frame: Frame) -> Iterator[tuple[int, int]]:
    """(identifier, value), in their order. Raises ProtocolError."""
    payload = memoryview(frame.raw)[HEAD_BYTES:]
    if len(payload) % _SETTING.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
    return _SETTING.iter_unpack(payload)


def increment_of(frame: Frame) -> int:
    """Bytes of a WINDOW_UPDATE. Raises ProtocolError."""
    if len(frame.raw) != HEAD_BYTES + _U32.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "WINDOW_UPDATE of a length other than 4")
    found: int = _U32.unpack_from(frame.raw, HEAD_BYTES)[0] & _STREAM_MASK
    if not found:
        raise ProtocolError(PROTOCOL_ERROR, "WINDOW_UPDATE of 0 bytes")
    return found


def make(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def window_update(stream: int, increment: int) -> bytes:
    return make(WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def rst_stream(stream: int, code: int) -> bytes:
    return make(RST_STREAM, 0, stream, _U32.pack(code))


def goaway(last_stream: int, code: int, text: str = "") -> bytes:
    return make(GOAWAY, 0, 0, _GOAWAY.pack(last_stream, code) + text.encode())


def _length(raw: bytes, offset: int) -> int:
    return raw[offset] << 16 | raw[offset + 1] << 8 | raw[offset + 2]


def _without_padding(payload: bytes | memoryview) -> bytes | memoryview:
    if not payload or payload[0] >= len(payload):
        raise ProtocolError(PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
