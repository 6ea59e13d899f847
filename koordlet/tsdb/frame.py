"""The unit on disk: some rows of all series, compressed, checksummed, complete in itself.

A frame carries its own series dictionary, so that a damaged neighbour never makes it
unreadable; the price is about 0.1 byte a sample::

    header      44 bytes, little-endian, see _HEADER; has a CRC-32 of itself
    directory   times (int64 ms a row), group table (length and CRC-32 of each group),
                dictionary (deflated msgpack); one CRC-32, held by the header
    groups      GROUP_COLUMNS columns each: lanes.pack, then deflate

A file is frames one after the other. A frame of history has ``stats`` columns per series instead
of one: all series' first statistic, then all series' second, and so on.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from koordlet.tsdb import lanes
from koordlet.tsdb.files import Read

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
"""Identity of a series: its kind, and its labels sorted by name."""

GROUP_COLUMNS = 64
MAX_ROWS = 0xFFFF

_MAGIC = b"KLTS"
_VERSION = 1
# magic, version, stats, rows, series, directory bytes, frame bytes, first ms, last ms,
# directory CRC; the header's own CRC follows
_HEADER = struct.Struct("<4sBBHIIIqqI")
_CRC = struct.Struct("<I")
_GROUP = struct.Struct("<II")
HEADER_BYTES = _HEADER.size + _CRC.size


class DamagedError(Exception):
    """The text says which part and what is wrong; the caller adds file and offset."""


class Frame(NamedTuple):
    """What a header says, and where the frame starts in its file."""

    offset: int
    length: int
    rows: int
    series: int
    stats: int
    directory_bytes: int
    directory_crc: int
    first_ms: int
    last_ms: int


class Directory(NamedTuple):
    times: array[int]
    groups: list[tuple[int, int, int]]
    """Offset in the file, length, CRC-32."""
    dictionary: bytes


class _Dictionary(msgspec.Struct, array_like=True):
    kinds: list[str]
    labels: list[Labels]
    kind_of: bytes
    """uint16 for each series: index into ``kinds``."""
    labels_of: bytes
    """uint32 for each series: index into ``labels``."""


def pack_group(floats: bytes, rows: int) -> bytes:
    """Deflate whole columns of ``rows`` float32. Run-length matching alone: in differences there
    is little else to match, and it is twice as fast as the full search."""
    deflate = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_RLE)
    return deflate.compress(lanes.pack(floats, rows)) + deflate.flush()


def assemble(
    times: array[int], keys: Sequence[Key], groups: Sequence[bytes], stats: int = 1
) -> bytes:
    """A frame from packed groups; ``times`` in row order, ``keys`` in column order."""
    directory = b"".join(
        (
            times.tobytes(),
            *(_GROUP.pack(len(group), zlib.crc32(group)) for group in groups),
            _pack_dictionary(keys),
        )
    )
    length = HEADER_BYTES + len(directory) + sum(map(len, groups))
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        stats,
        len(times),
        len(keys),
        len(directory),
        length,
        min(times),
        max(times),
        zlib.crc32(directory),
    )
    return b"".join((header, _CRC.pack(zlib.crc32(header)), directory, *groups))


def _pack_dictionary(keys: Sequence[Key]) -> bytes:
    kinds: dict[str, int] = {}
    labels: dict[Labels, int] = {}
    kind_of = array("H", (kinds.setdefault(kind, len(kinds)) for kind, _ in keys))
    labels_of = array("I", (labels.setdefault(label, len(labels)) for _, label in keys))
    content = _Dictionary(list(kinds), list(labels), kind_of.tobytes(), labels_of.tobytes())
    return zlib.compress(msgspec.msgpack.encode(content), 3)


def parse_header(data: bytes, offset: int) -> Frame:
    """Raises DamagedError when ``data`` does not begin with a whole, known header."""
    if len(data) < HEADER_BYTES:
        raise DamagedError("torn header")
    body = data[: _HEADER.size]
    magic, version, stats, rows, series, directory, length, first, last, crc = _HEADER.unpack(body)
    if magic != _MAGIC or _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(body):
        raise DamagedError("header checksum")
    if version != _VERSION:
        raise DamagedError(f"format version {version}, this koordlet reads {_VERSION}")
    return Frame(offset, length, rows, series, stats, directory, crc, first, last)


def scan(read: Read, size: int) -> tuple[list[Frame], list[str]]:
    """Frames of a file by their headers alone, and what is wrong with it.

    After a bad header the search goes on at the next one whose checksum holds, so a damaged
    frame costs only itself.
    """
    frames: list[Frame] = []
    damaged: list[str] = []
    offset = 0
    while offset < size:
        try:
            frame = parse_header(read(offset, HEADER_BYTES), offset)
            if offset + frame.length > size:
                raise DamagedError(f"torn frame, {offset + frame.length - size} bytes missing")
        except DamagedError as error:
            damaged.append(f"byte {offset}: {error}")
            offset = _next_header(read(offset, size - offset), offset)
        else:
            frames.append(frame)
            offset += frame.length
    return frames, damaged


def _next_header(data: bytes, base: int) -> int:
    """Offset in the file of the first good header after ``data``'s first byte, or its end."""
    found = data.find(_MAGIC, 1)
    while found >= 0:
        try:
            parse_header(data[found : found + HEADER_BYTES], base + found)
        except DamagedError:
            found = data.find(_MAGIC, found + 1)
        else:
            return base + found
    return base + len(data)


def read_directory(read: Read, frame: Frame) -> Directory:
    """Raises DamagedError."""
    raw = read(frame.offset + HEADER_BYTES, frame.directory_bytes)
    if len(raw) != frame.directory_bytes or zlib.crc32(raw) != frame.directory_crc:
        raise DamagedError("directory checksum")
    times: array[int] = array("q")
    times.frombytes(raw[: 8 * frame.rows])
    count = -(-frame.series * frame.stats // GROUP_COLUMNS)
    table_end = 8 * frame.rows + _GROUP.size * count
    groups: list[tuple[int, int, int]] = []
    offset = frame.offset + HEADER_BYTES + frame.directory_bytes
    for length, crc in _GROUP.iter_unpack(raw[8 * frame.rows : table_end]):
        groups.append((offset, length, crc))
        offset += length
    return Directory(times, groups, raw[table_end:])


def parse_dictionary(packed: bytes) -> dict[Key, int]:
    """Column of each series, in column order."""
    content = msgspec.msgpack.decode(zlib.decompress(packed), type=_Dictionary)
    kind_of = memoryview(content.kind_of).cast("H")
    labels_of = memoryview(content.labels_of).cast("I")
    kinds, labels = content.kinds, content.labels
    return {
        (kinds[kind], labels[label]): column
        for column, (kind, label) in enumerate(zip(kind_of, labels_of, strict=True))
    }


def read_group(read: Read, directory: Directory, index: int) -> bytes:
    """Byte planes of one group. Raises DamagedError."""
    offset, length, crc = directory.groups[index]
    raw = read(offset, length)
    if len(raw) != length or zlib.crc32(raw) != crc:
        raise DamagedError(f"checksum of group {index}")
    return zlib.decompress(raw)


def column_of(planes: bytes, rows: int, column: int) -> array[float]:
    """One column of a group, ``column`` counted inside the group."""
    size = len(planes) // lanes.PLANES
    start = column * rows
    return lanes.unpack(
        b"".join(
            planes[plane * size + start : plane * size + start + rows]
            for plane in range(lanes.PLANES)
        ),
        rows,
    )
