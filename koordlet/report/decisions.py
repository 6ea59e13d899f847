"""The decision log: what was written or refused, and why, bounded on disk. It is read back by
``decision_search``.

``decisions-NNNNNNNN.jsonl`` files of an eighth of the bound, the oldest deleted first. One line
is one ``Record``; a torn or damaged line is skipped. Where the disk refuses, the latest records
stay in memory, ``error`` says so, and they are written once it accepts again.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec
import structlog

from koordlet.decision.names import encodable_all
from koordlet.decision.record import Record
from koordlet.report.decision_search import Extent, history

log = structlog.get_logger()

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
_SEGMENTS = 8
_PENDING_RECORDS = 2000
"""How many records wait in memory while the disk refuses them."""


class DecisionLog:
    """``flush`` is to be called at least once a second; ``append`` only buffers.

    ``error``: why nothing reaches the disk at present, else empty. ``dropped``: records lost
    because of that. Opening never fails: a directory that cannot be used is such an error.
    """

    def __init__(self, directory: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.directory = directory
        self.error = ""
        self.dropped = 0
        self._max_bytes = max_bytes
        self._pending: deque[bytes] = deque()
        self._encoder = msgspec.json.Encoder()
        self._segments: dict[int, _Segment] = {}
        self._fd = -1
        try:
            os.makedirs(directory, mode=0o750, exist_ok=True)
            self._scan()
        except OSError as error:
            self._fail(error)

    @property
    def disk_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments.values())

    @property
    def records(self) -> int:
        """On disk and waiting; damaged lines count."""
        return sum(s.lines for s in self._segments.values()) + len(self._pending)

    def append(self, records: Iterable[Record]) -> None:
        self._pending.extend(self._encode(record) + b"\n" for record in records)
        while len(self._pending) > _PENDING_RECORDS and self.error:
            self._pending.popleft()
            self.dropped += 1

    def _encode(self, record: Record) -> bytes:
        try:
            return self._encoder.encode(record)
        except UnicodeEncodeError:  # a name in a sentence
            return self._encoder.encode(encodable_all(msgspec.to_builtins(record)))

    def flush(self) -> None:
        """Write what waits. Never raises; ``error`` tells."""
        if not self._pending:
            return
        try:
            while self._pending:
                self._write(self._batch())
        except OSError as error:
            self._fail(error)
            return
        if self.error:
            log.info("decision log is written again", directory=self.directory)
        self.error = ""

    def close(self) -> None:
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def extent(self) -> Extent:
        """What is in the log now, for ``decision_search``, which may read it in another thread."""
        files = tuple(
            (self._path(number), self._segments[number].size_bytes)
            for number in sorted(self._segments)
        )
        return Extent(files, tuple(self._pending))

    def read(self, *, newest_first: bool = True) -> Iterator[Record]:
        """Every record, waiting ones included."""
        return history(self.extent(), newest_first=newest_first)

    def _scan(self) -> None:
        for name in os.listdir(self.directory):
            number = _number(name)
            if number is not None:
                with open(os.path.join(self.directory, name), "rb") as file:
                    data = file.read()
                torn = bool(data) and not data.endswith(b"\n")
                self._segments[number] = _Segment(len(data), data.count(b"\n"), torn)

    def _batch(self) -> list[bytes]:
        """The oldest waiting lines that fit into the segment to be written next."""
        last = self._segments[max(self._segments)] if self._segments else None
        if last is None or last.torn or last.size_bytes >= self._segment_bytes:
            self._start_segment()
            last = self._segments[max(self._segments)]
        size, lines = last.size_bytes, []
        for line in self._pending:
            lines.append(line)
            size += len(line)
            if size >= self._segment_bytes:
                break
        return lines

    def _write(self, lines: list[bytes]) -> None:
        number = max(self._segments)
        segment, data = self._segments[number], b"".join(lines)
        self._make_room(len(data))
        if self._fd < 0:
            os.makedirs(self.directory, mode=0o750, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self._path(number), flags, 0o640)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, segment.size_bytes)
                written = 0
            segment.size_bytes += written
            segment.torn = written > 0
            raise
        segment.size_bytes += len(data)
        segment.lines += len(lines)
        for _ in lines:
            self._pending.popleft()

    def _start_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._segments[max(self._segments, default=0) + 1] = _Segment(0, 0, torn=False)

    def _make_room(self, size: int) -> None:
        for number in sorted(self._segments)[:-1]:
            if self.disk_bytes + size <= self._max_bytes:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(number))
            del self._segments[number]

    @property
    def _segment_bytes(self) -> int:
        return self._max_bytes // _SEGMENTS

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, f"decisions-{number:08d}.jsonl")

    def _fail(self, error: OSError) -> None:
        if not self.error:
            log.warning("decision log kept in memory", directory=self.directory, error=str(error))
        self.error = f"{error.strerror or error}: the last {_PENDING_RECORDS} records are in memory"


def extent_of(directory: str) -> Extent:
    """Of a log that nobody writes, or of what is on disk of one; empty where there is none."""
    found: dict[int, tuple[str, int]] = {}
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            number = _number(entry.name)
            if number is not None:
                found[number] = entry.path, entry.stat().st_size
    return Extent(tuple(found[number] for number in sorted(found)), ())


def _number(name: str) -> int | None:
    """Of a file of the log; None for any other."""
    number = name.removeprefix("decisions-").removesuffix(".jsonl")
    return int(number) if name == f"decisions-{number}.jsonl" and number.isdecimal() else None


class _Segment(msgspec.Struct):
    """One file of the log. ``torn``: its last line is not whole."""

    size_bytes: int
    lines: int
    torn: bool
