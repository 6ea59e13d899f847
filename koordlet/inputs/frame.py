"""A frame on disk: a header with checksums, then the minute as deflated msgpack::

    header    48 bytes, little-endian, see _HEADER; has a CRC-32 of itself
    content   deflated msgpack of ``model.Minute``; its CRC-32 is in the header

A file is frames one after the other. The first one is whole, so a file can be read alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from koordlet.inputs.model import Minute
from koordlet.inputs.packing import readable, unpacked
from koordlet.protocol.document import UNREADABLE
from koordlet.tsdb.files import Read

MAX_CONTENT_BYTES = 64 << 20
"""Of one minute, inflated. 300 pods that all change in it are a tenth of that."""

_MAGIC = b"KLIN"
_VERSION = 1
_WHOLE, _MEMORIES, _START = 1, 2, 4
# magic, version, flags, turns, content bytes, bytes inflated, first ms, last ms, content CRC;
# the header's own CRC follows
_HEADER = struct.Struct("<4sBBHIIqqI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_LEVEL = 6


class DamagedError(Exception):
    """A file that is not what was written. ``offset``: byte at which the damaged frame begins."""

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path}: byte {offset}: {what}")
        self.path = path
        self.offset = offset
        self.what = what


class Frame(NamedTuple):
    """What a header says, and where the frame starts in its file. ``first_ms`` and ``last_ms``:
    unix time of the first and of the last turn."""

    offset: int
    length: int
    turns: int
    first_ms: int
    last_ms: int
    is_whole: bool
    has_memories: bool
    is_start: bool
    inflated_bytes: int
    crc: int


def pack(minute: Minute, first_ms: int, last_ms: int) -> bytes:
    """Raises ValueError for more than ``MAX_CONTENT_BYTES``, and for a number beyond 64 bits."""
    try:
        raw = readable(minute)
    except OverflowError:
        raise ValueError("a number in this minute of inputs is beyond 64 bits") from None
    if len(raw) > MAX_CONTENT_BYTES:
        raise ValueError(f"a minute of inputs takes {len(raw)} bytes, more than a frame may")
    content = zlib.compress(raw, _LEVEL)
    flags = _MEMORIES if minute.memories is not None else 0
    if minute.begin is not None:
        flags |= _WHOLE | (_START if minute.begin.is_start else 0)
    turns = len(minute.rounds)
    facts = (turns, len(content), len(raw), first_ms, last_ms, zlib.crc32(content))
    header = _HEADER.pack(_MAGIC, _VERSION, flags, *facts)
    return b"".join((header, _CRC.pack(zlib.crc32(header)), content))


def scan(read: Read, path: str) -> Iterator[Frame]:
    """Frames of a file by their headers. A last one that was torn by a kill is left out.

    Raises DamagedError where no header stands; what follows cannot be found then.
    """
    offset = 0
    while len(header := read(offset, HEADER_BYTES)) == HEADER_BYTES:
        magic, version, flags, turns, length, inflated, first_ms, last_ms, crc = _HEADER.unpack(
            header[: _HEADER.size]
        )
        if magic != _MAGIC or header[_HEADER.size :] != _CRC.pack(
            zlib.crc32(header[: _HEADER.size])
        ):
            raise DamagedError(path, offset, "no header of a frame of the inputs log")
        if version != _VERSION:
            raise DamagedError(path, offset, f"format {version}, this koordlet reads {_VERSION}")
        end = offset + HEADER_BYTES + length
        if length and not read(end - 1, 1):
            return
        yield Frame(
            offset,
            length,
            turns,
            first_ms,
            last_ms,
            bool(flags & _WHOLE),
            bool(flags & _MEMORIES),
            bool(flags & _START),
            inflated,
            crc,
        )
        offset = end


def unpack(read: Read, frame: Frame, path: str) -> Minute:
    """Raises DamagedError."""
    content = read(frame.offset + HEADER_BYTES, frame.length)
    if len(content) != frame.length or zlib.crc32(content) != frame.crc:
        raise DamagedError(path, frame.offset, "checksum of its content")
    if frame.inflated_bytes > MAX_CONTENT_BYTES:
        raise DamagedError(path, frame.offset, f"claims to hold {frame.inflated_bytes} bytes")
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(content, max(frame.inflated_bytes, 1))  # 0 is no limit
        minute = unpacked(raw, Minute)
    except (zlib.error, *UNREADABLE) as error:
        raise DamagedError(path, frame.offset, f"not readable: {error}") from error
    turns = len(minute.rounds)
    if not len(minute.now) == len(minute.time) == 8 * turns or len(minute.lags_ms) != turns:
        raise DamagedError(path, frame.offset, "columns of different lengths")
    return minute
