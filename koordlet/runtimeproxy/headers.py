"""Header blocks (HPACK, RFC 7541) read beside the stream of frames, and answers of our own.

What passes is never encoded again, so both peers' tables stay in step with each other; the
decoder here only follows. What the proxy adds uses no dynamic table, so it disturbs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hpack import Decoder, HPACKError
from hpack.hpack import encode_integer

from koordlet.runtimeproxy import frames
from koordlet.runtimeproxy.frames import Frame, ProtocolError

_MAX_LIST_BYTES: Final = 1 << 20
_MAX_TEXT_BYTES: Final = 1024
"""Clients limit a header list to 8 KiB and more."""
_MAX_KNOWN: Final = 64
_MAX_KNOWN_BYTES: Final = 256
_STATUS_200: Final = b"\x88"  # :status 200, number 8 of the static table

GRPC_OK: Final = 0
GRPC_UNKNOWN: Final = 2
GRPC_RESOURCE_EXHAUSTED: Final = 8
GRPC_UNAVAILABLE: Final = 14


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
        first, sizes = self._first(), self._sizes()
        try:
            found = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, True)}
        except (HPACKError, IndexError) as error:  # IndexError: a block cut inside a literal
            text = f"header block: {error}"
            raise ProtocolError(frames.COMPRESSION_ERROR, text) from error
        # An entry that is added is a new object at the front, also when it is equal to the old.
        changed = self._first() is not first or self._sizes() != sizes
        if changed or len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        elif len(block) <= _MAX_KNOWN_BYTES:
            self._known[block] = found
        return found

    def _first(self) -> object:
        """The newest entry of the table. Whoever holds it keeps its identity its own."""
        entries = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None

    def _sizes(self) -> tuple[int, int]:
        table = self._decoder.header_table
        return table.maxsize, len(table.dynamic_entries)


def trailers(stream: int, status: int, text: str, *, alone: bool) -> bytes:
    """The frame that ends a gRPC call. ``alone``: there was no response before it."""
    block = _STATUS_200 + _literal(b"content-type", b"application/grpc") if alone else b""
    block += _literal(b"grpc-status", b"%d" % status) + _literal(b"grpc-message", _escape(text))
    flags = frames.END_HEADERS | frames.END_STREAM
    return frames.make(frames.HEADERS, flags, stream, block)


def status_of(headers: Mapping[bytes, bytes]) -> int | None:
    """grpc-status; None where there is none that is a number."""
    found = headers.get(b"grpc-status", b"")
    return int(found) if found.isdigit() else None


def _literal(name: bytes, value: bytes) -> bytes:
    """Literal header field without indexing, new name (RFC 7541 section 6.2.2)."""
    sized = (bytes(encode_integer(len(part), 7)) + part for part in (name, value))
    return b"\0" + b"".join(sized)


def _escape(text: str) -> bytes:
    """Percent-encoding of grpc-message (gRPC over HTTP2)."""
    cut = text.encode()[:_MAX_TEXT_BYTES]
    return b"".join(b"%c" % c if 0x20 <= c <= 0x7E and c != 0x25 else b"%%%02X" % c for c in cut)
