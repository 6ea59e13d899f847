"""The decision log: what was written or refused, and why, bounded on disk.

``decisions-NNNNNNNN.jsonl`` files of an eighth of the bound, the oldest deleted first. One line
is one ``Record``; a torn or damaged line is skipped. Where the disk refuses, the latest records
stay in memory, ``error`` says so, and they are written once it accepts again.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import islice

import msgspec
import structlog

from koordlet.actuator.outcome import Outcome
from koordlet.decision.answer import Combined
from koordlet.decision.names import encodable_all, shown
from koordlet.decision.plan import Result
from koordlet.decision.resource import Value
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Subject
from koordlet.decision.why import Why

log = structlog.get_logger()

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
_SEGMENTS = 8
_PENDING_RECORDS = 2000
"""How many records wait in memory while the disk refuses them."""


class Kind(StrEnum):
    WRITE = "write"  # a value written, put back or given to a runtime, or that would be
    REFUSAL = "refusal"  # outvoted, unsupported, refused by the kernel or the journal, gone
    CONFLICT = "conflict"  # somebody else writes the same file
    EVICTION = "eviction"  # somebody is ended, or would be
    NOTE = "note"  # what an owner did not do, and why
    ALARM = "alarm"
    CONFIG = "config"
    LIFECYCLE = "lifecycle"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """``previous`` is what the kernel held, ``wanted`` what should be there; ``detail`` what the
    actuator adds (errno, path, winner). ``cgroup`` and ``resource`` are empty where the record is
    not about one file. ``time``: unix seconds. ``wake``: what caused the decision. Names of cgroups
    are as ``decision.names.shown`` writes them.
    """

    time: float
    kind: Kind
    owner: str
    why: Why
    cgroup: str = ""
    resource: str = ""
    previous: Value | None = None
    wanted: Value | None = None
    result: str = ""
    detail: str = ""
    wake: str = ""


_KINDS = {
    Result.WRITTEN: Kind.WRITE,
    Result.RESTORED: Kind.WRITE,
    Result.WOULD_WRITE: Kind.WRITE,
    Result.WOULD_RESTORE: Kind.WRITE,
    Result.IN_FORCE: Kind.NOTE,
    Result.CONFLICT: Kind.CONFLICT,
}


def record_of(outcome: Outcome, wake: str = "") -> Record:
    """What the actuator's ``audit`` hears, as a record."""
    return Record(
        time=outcome.time,
        kind=_KINDS.get(outcome.result, Kind.REFUSAL),
        owner=outcome.owner,
        why=outcome.why,
        cgroup=shown(outcome.cgroup),
        resource=outcome.resource,
        previous=outcome.found,
        wanted=outcome.wanted,
        result=outcome.result,
        detail=outcome.text,
        wake=wake,
    )


def answer_records(
    combined: Combined, subject: Subject, snapshot: Snapshot, *, observing: bool
) -> Iterator[Record]:
    """What a container gets through the runtime that asked about it."""
    wake = snapshot.wake.title

    def record(owner: str, resource: str, value: Value, why: Why) -> Record:
        return Record(
            time=snapshot.time,
            kind=Kind.WRITE,
            owner=owner,
            why=why,
            cgroup=shown(subject.cgroup),
            resource=resource,
            wanted=value,
            result="would-answer" if observing else "answered",
            wake=wake,
        )

    for wanted in combined.settings:
        yield record(wanted.owner, wanted.resource, wanted.value, wanted.why)
    for env in combined.env:
        yield record(_hook_of(env.why), f"env {env.name}", env.value, env.why)
    for mount in combined.mounts:
        yield record(_hook_of(mount.why), f"mount {mount.destination}", mount.source, mount.why)
    for device in combined.devices:
        yield record(_hook_of(device.why), "device", device.node.path, device.why)


def _hook_of(why: Why) -> str:
    """The first part of a rule's id is the name of the hook."""
    return why.rule.partition(".")[0]


def matches(record: Record, target: str) -> bool:
    """A cgroup or an ancestor of it, ``CGROUP/RESOURCE``, an owner, a resource, or part of the id
    of a rule."""
    return (
        target in {record.owner, record.resource, f"{record.cgroup}/{record.resource}"}
        or record.cgroup == target
        or record.cgroup.startswith(target + "/")
        or target in record.why.rule
    )


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
        self._decoder = msgspec.json.Decoder(Record)
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

    def read(
        self,
        *,
        newest_first: bool = True,
        limit: int | None = None,
        target: str | None = None,
        since: float | None = None,
    ) -> Iterator[Record]:
        """Records that ``matches`` holds for, since a unix time; waiting ones included."""
        return islice(self._filtered(newest_first, target, since), limit)

    def explain(self, target: str | None, limit: int) -> list[Record]:
        """The latest ``limit`` records that ``target`` matches (None: all), newest first, and with
        them, from there back, those of the same files, whoever wrote them.

        Of the alarms of one source only the newest: they may come twice a second for hours.
        """
        found: list[Record] = []
        needles = {self._needle(target)}
        files: set[tuple[str, str]] = set()
        alarms: set[tuple[str, str]] = set()
        for record in self._decoded(True, lambda line: any(each in line for each in needles)):
            file = record.cgroup, record.resource
            if file not in files:
                if target is not None and not matches(record, target):
                    continue
                if record.resource:
                    files.add(file)
                    needles.add(self._needle(record.cgroup))
            if record.kind is Kind.ALARM:
                source = record.cgroup, record.why.rule
                if source in alarms:
                    continue
                alarms.add(source)
            found.append(record)
            if len(found) >= limit:
                break
        return found

    def _filtered(
        self, newest_first: bool, target: str | None, since: float | None
    ) -> Iterator[Record]:
        needle = self._needle(target)
        for record in self._decoded(newest_first, lambda line: needle in line):
            if since is not None and record.time < since:
                continue
            if target is None or matches(record, target):
                yield record

    def _needle(self, target: str | None) -> bytes:
        """What every line contains whose record ``matches``. Decoding is what costs."""
        if target is None:
            return b""
        return self._encoder.encode(target.rpartition("/")[0] or target)[1:-1]

    def _decoded(self, newest_first: bool, wanted: Callable[[bytes], bool]) -> Iterator[Record]:
        for line in self._lines(newest_first):
            if wanted(line):
                with contextlib.suppress(msgspec.MsgspecError):
                    yield self._decoder.decode(line)

    def _lines(self, newest_first: bool) -> Iterator[bytes]:
        pending = tuple(self._pending)
        if newest_first:
            yield from reversed(pending)
        for number in sorted(self._segments, reverse=newest_first):
            try:
                with open(self._path(number), "rb") as file:
                    lines = file.read().splitlines()
            except OSError:  # rotated away while we read
                continue
            yield from reversed(lines) if newest_first else lines
        if not newest_first:
            yield from pending

    def _scan(self) -> None:
        for name in os.listdir(self.directory):
            stem, dot, extension = name.partition(".")
            number = stem.removeprefix("decisions-")
            if number != stem and number.isdigit() and (dot + extension) == ".jsonl":
                with open(os.path.join(self.directory, name), "rb") as file:
                    data = file.read()
                torn = bool(data) and not data.endswith(b"\n")
                self._segments[int(number)] = _Segment(len(data), data.count(b"\n"), torn)

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


class _Segment(msgspec.Struct):
    """One file of the log. ``torn``: its last line is not whole."""

    size_bytes: int
    lines: int
    torn: bool
