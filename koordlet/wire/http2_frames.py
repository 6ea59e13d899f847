"""HTTP/2 frames (RFC 9113 section 4): taken apart without being changed, and made."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
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
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

SETTING_HEADER_TABLE_SIZE: Final = 0x1
SETTING_ENABLE_PUSH: Final = 0x2
SETTING_MAX_CONCURRENT_STREAMS: Final = 0x3
SETTING_INITIAL_WINDOW_SIZE: Final = 0x4
SETTING_MAX_FRAME_SIZE: Final = 0x5

DEFAULT_WINDOW_BYTES: Final = 65535
MAX_WINDOW_BYTES: Final = 2**31 - 1
DATA_BYTES: Final = 16384
"""The largest payload of a frame. Every peer must take this much (SETTINGS_MAX_FRAME_SIZE is never
below), and none is offered more (``settings.py``)."""
MAX_REQUEST_BLOCK_BYTES: Final = 64 << 10
MAX_RESPONSE_BLOCK_BYTES: Final = 1 << 20
"""Of one compressed header block. Error texts of a runtime come in trailers and can be long."""
MAX_BLOCK_FRAMES: Final = 128

HEAD_BYTES: Final = 9
_HEAD = struct.Struct(">BHBBL")  # length (8 + 16 bits), type, flags, stream
_U32 = struct.Struct(">L")
_SETTING = struct.Struct(">HL")
SETTING_BYTES: Final = _SETTING.size
_GOAWAY = struct.Struct(">LL")
MAX_STREAM: Final = 2**31 - 1
_STREAM_MASK = MAX_STREAM


class ProtocolError(Exception):
    """A peer broke HTTP/2; its connection ends with ``code`` (RFC 9113 section 7)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """``raw``: as it came, with its head; a view of what was read, so that DATA is not copied. A
    header block that was continued is one frame here, of all its bytes, because nothing may come
    between its parts."""

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
        self._block: list[Frame] = []  # parts of a header block that is not whole yet
        self._block_bytes = 0
        self._max_block_bytes = MAX_REQUEST_BLOCK_BYTES if from_client else MAX_RESPONSE_BLOCK_BYTES

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
            after = offset + HEAD_BYTES + low
            if high or low > DATA_BYTES:
                raise ProtocolError(FRAME_SIZE_ERROR, f"a frame above {DATA_BYTES} bytes")
            if after > end:
                self._keep(source, offset, after - offset)
                return
            raw = view[offset:after]
            offset = after
            stream &= _STREAM_MASK
            if self._block or kind in _BLOCK_KINDS:
                whole = self._join(Frame(kind, flags, stream, bytes(raw)))
                if whole is not None:
                    yield whole
            else:
                yield Frame(kind, flags, stream, raw)
        if offset < end:
            self._keep(source, offset, HEAD_BYTES)

    def _keep(self, source: bytes | bytearray, offset: int, needed: int) -> None:
        self._buffer = bytearray(source[offset:])
        self._needed = needed

    def _join(self, part: Frame) -> Frame | None:
        """The whole header block once its last part is there."""
        parts = self._block
        if not parts and part.kind != CONTINUATION and part.flags & END_HEADERS:
            return part
        if parts:
            if part.kind != CONTINUATION or part.stream != parts[0].stream:
                raise ProtocolError(PROTOCOL_ERROR, "another frame inside a header block")
        elif part.kind == CONTINUATION:
            raise ProtocolError(PROTOCOL_ERROR, "CONTINUATION without a header block")
        parts.append(part)
        self._block_bytes += len(part.raw) - HEAD_BYTES
        if self._block_bytes > self._max_block_bytes or len(parts) > MAX_BLOCK_FRAMES:
            text = f"header block above {self._max_block_bytes} bytes or {MAX_BLOCK_FRAMES} frames"
            raise ProtocolError(ENHANCE_YOUR_CALM, text)
        if not part.flags & END_HEADERS:
            return None
        self._block, self._block_bytes = [], 0
        raw = b"".join(each.raw for each in parts)
        return parts[0]._replace(flags=parts[0].flags | END_HEADERS, raw=raw)


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
    if after == len(raw) and frame.kind == HEADERS and not frame.flags & (PADDED | HAS_PRIORITY):
        return raw[HEAD_BYTES:]
    block = raw[HEAD_BYTES:after]
    if frame.flags & PADDED:
        block = bytes(_without_padding(block))
    skip = 4 if frame.kind == PUSH_PROMISE else 5 if frame.flags & HAS_PRIORITY else 0
    if len(block) < skip:
        raise ProtocolError(FRAME_SIZE_ERROR, "HEADERS too short for its flags")
    if after == len(raw):
        return block[skip:]
    pieces = [block[skip:]]
    while after < len(raw):
        begin = after + HEAD_BYTES
        after = begin + _length(raw, after)
        pieces.append(raw[begin:after])
    return b"".join(pieces)


def settings_of(frame: Frame) -> Iterator[tuple[int, int]]:
    """(identifier, value), in their order. Raises ProtocolError."""
    payload = memoryview(frame.raw)[HEAD_BYTES:]
    if len(payload) % _SETTING.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
    return _SETTING.iter_unpack(payload)


def last_stream_of(frame: Frame) -> int:
    """Of a GOAWAY. Raises ProtocolError."""
    if len(frame.raw) < HEAD_BYTES + _GOAWAY.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "GOAWAY too short")
    found: int = _GOAWAY.unpack_from(frame.raw, HEAD_BYTES)[0]
    return found & _STREAM_MASK


def increment_of(frame: Frame) -> int:
    """Bytes of a WINDOW_UPDATE. Raises ProtocolError."""
    if len(frame.raw) != HEAD_BYTES + _U32.size:
        raise ProtocolError(FRAME_SIZE_ERROR, "WINDOW_UPDATE of a length other than 4")
    found: int = _U32.unpack_from(frame.raw, HEAD_BYTES)[0] & _STREAM_MASK
    if not found:
        raise ProtocolError(PROTOCOL_ERROR, "WINDOW_UPDATE of 0 bytes")
    return found


def make(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    size = len(payload)
    return b"".join((_HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream), payload))


def settings(pairs: Mapping[int, int]) -> bytes:
    return make(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in pairs.items()))


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
