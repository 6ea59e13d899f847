"""The decision log read back, by any thread, while the daemon goes on writing it.

An ``Extent`` says which files there were at one instant, how long each was, and what still waited
in memory. The log only appends behind those lengths, and a file that was deleted since is left
out, so a reader needs no lock and sees no record twice. Files are read in blocks, so that memory
is bounded by ``BLOCK_BYTES`` and the longest line, not by the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from koordlet.actuator.evict.executor import EvictResult
from koordlet.decision.names import mentions
from koordlet.decision.record import Kind, Record
from koordlet.protocol.document import UNREADABLE

BLOCK_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 1024 * 1024
"""What is longer is no record of ours and is skipped."""
MOST_FILES = 10_000
"""Files whose newest record is looked for at a time: each has some 2 KiB."""
_EVICTION = b'"eviction"'
"""Text that every line of one contains."""
_FEW = 8
"""A block is searched for this many texts before its lines are decoded; more would cost more than
decoding."""
Pause = Callable[[], None]
"""Called often while something is searched for: whoever must let others run does so in it."""


@dataclass(frozen=True)
class Extent:
    """``files``: path and length in bytes of each, oldest first. ``waiting``: lines that are not
    written yet, oldest first."""

    files: tuple[tuple[str, int], ...]
    waiting: tuple[bytes, ...]


class _Rule(msgspec.Struct):
    rule: str


class Header(msgspec.Struct):
    """What tells whether a record is wanted. Decoding it takes a third of the time of a record."""

    time: float
    kind: Kind
    owner: str
    why: _Rule
    cgroup: str = ""
    resource: str = ""


_encoder = msgspec.json.Encoder()
_headers = msgspec.json.Decoder(Header)
_records = msgspec.json.Decoder(Record)


def explain(
    extent: Extent,
    target: str | None,
    limit: int,
    pause: Pause = lambda: None,
    name: str = "",
) -> list[Record]:
    """The latest ``limit`` records that ``target`` matches (None: all), newest first, and with
    them, from there back, those of the same files, whoever wrote them. ``name``: notes that
    mention it match too.

    Of the alarms of one source only the newest: they may come twice a second for hours.
    """
    found: list[Record] = []
    in_a_note = _quoted(name)
    needles = {_needle(target), *([in_a_note] if name else ())}
    files: set[tuple[str, str]] = set()
    alarms: set[tuple[str, str]] = set()
    for block in _blocks(extent, newest_first=True):
        pause()
        if len(needles) <= _FEW and not any(needle in block for needle in needles):
            continue
        for line in reversed(block.split(b"\n")):
            header = _header(line)
            if header is None:
                continue
            file = header.cgroup, header.resource
            is_sought = file in files or target is None or matches(header, target)
            may_mention = bool(name) and header.kind is Kind.NOTE and in_a_note in line
            if not is_sought and not may_mention:
                continue
            if header.kind is Kind.ALARM:
                source = header.cgroup, header.why.rule
                if source in alarms:
                    continue
                alarms.add(source)
            record = _record(line)
            if record is None or not (is_sought or mentions(record.why.text, name)):
                continue
            if header.resource:
                files.add(file)
                needles.add(_quoted(header.cgroup or header.resource))
            found.append(record)
            if len(found) >= limit:
                return found
    return found


def history(
    extent: Extent,
    since: float | None = None,
    *,
    newest_first: bool = False,
    pause: Pause = lambda: None,
) -> Iterator[Record]:
    """All records, or those since a unix time."""
    for block in _blocks(extent, newest_first=newest_first):
        pause()
        lines = block.split(b"\n")
        for line in reversed(lines) if newest_first else lines:
            if since is not None:
                header = _header(line)
                if header is None or header.time < since:
                    continue
            record = _record(line)
            if record is not None:
                yield record


def evictions(
    extent: Extent, since: float, until: float, limit: int, pause: Pause = lambda: None
) -> list[Record]:
    """Kills and evictions of the time, the newest first: one that has ended not also as begun."""
    found: list[Record] = []
    over: set[str] = set()
    for block in _blocks(extent, newest_first=True):
        pause()
        if _EVICTION not in block:
            continue
        for line in reversed(block.split(b"\n")):
            record = _record(line) if _EVICTION in line else None
            if record is None or record.kind is not Kind.EVICTION or record.time > until:
                continue
            if record.time < since or len(found) >= limit:
                return found
            if record.result != EvictResult.BEGUN or record.cgroup not in over:
                found.append(record)
                over.add(record.cgroup)
    return found


def newest_of_files(
    extent: Extent,
    is_sought: Callable[[Header], bool],
    tells: Callable[[Record], bool],
    until: float,
    pause: Pause = lambda: None,
) -> list[Record]:
    """Return of each file that is sought the newest record until then that tells what is in it."""
    found: dict[tuple[str, str], Record] = {}
    for block in _blocks(extent, newest_first=True):
        for line in reversed(block.split(b"\n")):
            pause()
            header = _header(line)
            if header is None or header.time > until or not is_sought(header):
                continue
            file = header.cgroup, header.resource
            if file in found or len(found) >= MOST_FILES:
                continue
            record = _record(line)
            if record is not None and tells(record):
                found[file] = record
    return list(found.values())


def unreadable(extent: Extent, pause: Pause = lambda: None) -> int:
    """Lines that are no records. The last line of a file is none of them where it has no end: a
    kill came while it was written."""
    count = 0
    for path, size in extent.files:
        try:
            with open(path, "rb", buffering=0) as file:
                for block in _forwards(file.fileno(), size):
                    pause()
                    *lines, _ = block.split(b"\n")
                    count += sum(bool(line) and _header(line) is None for line in lines)
        except OSError:  # rotated away since
            continue
    return count


def matches(record: Record | Header, target: str) -> bool:
    """A cgroup or an ancestor of it, ``CGROUP/RESOURCE``, an owner, a resource, or part of the id
    of a rule."""
    return (
        target in {record.owner, record.resource, f"{record.cgroup}/{record.resource}"}
        or record.cgroup == target
        or record.cgroup.startswith(target + "/")
        or target in record.why.rule
    )


def _header(line: bytes) -> Header | None:
    try:
        return _headers.decode(line) if line else None
    except UNREADABLE:
        return None


def _record(line: bytes) -> Record | None:
    try:
        return _records.decode(line) if line else None
    except UNREADABLE:
        return None


def _needle(target: str | None) -> bytes:
    """What every line contains whose record ``matches``: of CGROUP/RESOURCE the cgroup."""
    return b"" if target is None else _quoted(target.rpartition("/")[0] or target)


def _quoted(text: str) -> bytes:
    """As it stands between the quotes of JSON."""
    return _encoder.encode(text)[1:-1]


def _blocks(extent: Extent, *, newest_first: bool) -> Iterator[bytes]:
    """Pieces of whole lines."""
    waiting = b"".join(extent.waiting)
    if newest_first:
        yield waiting
    for path, size in reversed(extent.files) if newest_first else extent.files:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # rotated away since
            continue
        try:
            yield from (_backwards if newest_first else _forwards)(descriptor, size)
        except OSError:
            continue
        finally:
            os.close(descriptor)
    if not newest_first:
        yield waiting


def _backwards(descriptor: int, size: int) -> Iterator[bytes]:
    rest = b""
    while size > 0:
        start = max(0, size - BLOCK_BYTES)
        data = os.pread(descriptor, size - start, start) + rest
        # The first line has begun before, unless this is the beginning of the file.
        cut = data.find(b"\n") + 1 if start else 0
        if start and not cut:
            cut = len(data)
        rest, size = data[:cut], start
        if len(rest) > LONGEST_LINE_BYTES:
            rest = b""
        yield data[cut:]


def _forwards(descriptor: int, size: int) -> Iterator[bytes]:
    rest, start = b"", 0
    while start < size:
        data = rest + os.pread(descriptor, min(BLOCK_BYTES, size - start), start)
        start += BLOCK_BYTES
        cut = data.rfind(b"\n") + 1 if start < size else len(data)
        rest = data[cut:]
        if len(rest) > LONGEST_LINE_BYTES:
            rest = b""
        yield data[:cut]
