"""Header blocks (HPACK, RFC 7541) read beside the stream of frames, and answers of our own.

What passes is never encoded again, so both peers' tables stay in step with each other; the
decoder here only follows. What the proxy adds uses no dynamic table, so it disturbs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, ProtocolError

_MAX_LIST_BYTES: Final = 1 << 20
_MAX_TEXT_BYTES: Final = 1024
"""Clients limit a header list to 8 KiB and more."""
_MAX_KNOWN: Final = 64
_MAX_KNOWN_BYTES: Final = 256

GRPC_OK: Final = 0
GRPC_CANCELLED: Final = 1
GRPC_UNKNOWN: Final = 2
GRPC_DEADLINE_EXCEEDED: Final = 4
GRPC_RESOURCE_EXHAUSTED: Final = 8
GRPC_UNIMPLEMENTED: Final = 12
GRPC_INTERNAL: Final = 13
GRPC_UNAVAILABLE: Final = 14
STATUS_NAMES: Final = dict(
    enumerate(
        (
            *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
            *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
            *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
            "UNAUTHENTICATED",
        )
    )
)


class HeaderReader:
    """Of one direction of one connection; it must see every block, in order."""

    def __init__(self) -> None:
        self._decoder = Decoder(_MAX_LIST_BYTES)
        # A block that leaves the table as it is means the same until one changes it. Most blocks
        # of a connection are such, and decoding is half of what a call costs here.
        self._known: dict[bytes, Mapping[bytes, bytes]] = {}

    def allow_table(self, size_bytes: int) -> None:
        """The reading peer announced SETTINGS_HEADER_TABLE_SIZE. An encoder says when it uses
        another size, and until it has seen the announcement it may use the older, larger one."""
        decoder = self._decoder
        decoder.max_allowed_table_size = max(decoder.max_allowed_table_size, size_bytes)

    def read(self, frame: Frame) -> Mapping[bytes, bytes]:
        """Of a name that comes twice, the last. Raises ProtocolError."""
        block = frames.header_block(frame)
        known = self._known.get(block)
        if known is not None:
            return known
        found = {bytes(name): bytes(value) for name, value in self.pairs(block)}
        if len(block) <= _MAX_KNOWN_BYTES and not _changes_table(block):
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[block] = found
        else:
            self._known.clear()
        return found

    def pairs(self, block: bytes) -> Sequence[tuple[bytes, bytes]]:
        """Of a whole block, in its order. Raises ProtocolError."""
        try:
            return tuple(self._decoder.decode(block, True))
        except (HPACKError, IndexError) as error:  # IndexError: a block cut inside a literal
            text = f"header block: {error}"
            raise ProtocolError(frames.COMPRESSION_ERROR, text) from error


class SizeUpdateError(Exception):
    """A header block resizes the table."""


def fields_of(block: bytes) -> Iterator[tuple[bool, bool, int]]:
    """How a block writes its fields (RFC 7541 section 6): whether it is an entry of the tables as
    it is, whether it is added to the dynamic one, and the place of the entry that it is or that has
    its name, 0 where the name is written out. Raises SizeUpdateError, and IndexError where the
    block is cut."""
    at, end = 0, len(block)
    while at < end:
        first = block[at]
        if first & 0x80:
            index, at = _integer(block, at, 7)
            yield True, False, index
            continue
        added = bool(first & 0x40)
        if not added and first & 0x20:
            raise SizeUpdateError
        index, at = _integer(block, at, 6 if added else 4)
        for _ in range(1 if index else 2):
            size, at = _integer(block, at, 7)
            at += size
        yield False, added, index


def _changes_table(block: bytes) -> bool:
    try:
        return any(added for _, added, _ in fields_of(block))
    except SizeUpdateError:
        return True


def _integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """An integer (RFC 7541 section 5.1), and where it ends."""
    mask = (1 << prefix_bits) - 1
    found = block[at] & mask
    at += 1
    if found < mask:
        return found, at
    shift = 0
    while True:
        found += (block[at] & 0x7F) << shift
        shift += 7
        at += 1
        if block[at - 1] < 0x80:
            return found, at


def trailers(stream: int, status: int, text: str, *, alone: bool) -> bytes:
    """The frame that ends a gRPC call. ``alone``: there was no response before it."""
    pairs = [(b"grpc-status", b"%d" % status), (b"grpc-message", _escape(text))]
    if alone:
        pairs = [(b":status", b"200"), (b"content-type", b"application/grpc"), *pairs]
    flags = frames.END_HEADERS | frames.END_STREAM
    return frames.make(frames.HEADERS, flags, stream, block_of(*pairs))


def block_of(*pairs: tuple[bytes, bytes]) -> bytes:
    """A header block that the table of neither end remembers."""
    return _ENCODER.encode([NeverIndexedHeaderTuple(*pair) for pair in pairs])


def status_of(headers: Mapping[bytes, bytes]) -> int | None:
    """grpc-status; None where there is none that is a number."""
    found = headers.get(b"grpc-status", b"")
    return int(found) if found.isdigit() else None


_ENCODER = Encoder()  # it never gets a field that its table would keep


def text_of(headers: Mapping[bytes, bytes]) -> str:
    """grpc-message."""
    return unquote_to_bytes(headers.get(b"grpc-message", b"")).decode("utf-8", "replace")


def _escape(text: str) -> bytes:
    """Percent-encoding of grpc-message (gRPC over HTTP2)."""
    cut = text.encode()[:_MAX_TEXT_BYTES]
    return b"".join(b"%c" % c if 0x20 <= c <= 0x7E and c != 0x25 else b"%%%02X" % c for c in cut)
