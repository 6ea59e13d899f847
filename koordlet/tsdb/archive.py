"""Segments: files of frames, their rotation, their retention, and what happens without a disk.

``full-N.kts`` holds ten coarse steps (ten minutes) of frames at full resolution. When it has to
go, ``coarse-N.kts`` takes its place. Numbers only grow, and a file from before a restart is never
appended to: a torn tail stays the end of its file.

One thread at a time writes (the store's worker lock); any number read. Readers take ``segments``
once and work on that tuple; a segment is added, replaced or removed by swapping the tuple.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event

from koordlet.tsdb.coarse import coarsen
from koordlet.tsdb.files import Files, MemoryFiles
from koordlet.tsdb.frame import DamagedError, Frame, parse_header, scan

MEMORY_BYTES = 4 << 20
"""What segments may take while there is no disk: half a day of 200 series, or a quarter of an
hour of 7,000."""

COARSE_SHARE = 4  # a quarter of the bytes is for coarse history
COARSE_RETENTION_FACTOR = 14
STEPS_PER_SEGMENT = 10
FIRST_RETRY_MS = 30_000
LAST_RETRY_MS = 900_000
OLD_SEQ = -(1 << 62)
"""Sequence number of rows that were never in this process's hot window."""

_NAME = re.compile(r"(full|coarse)-(\d{8})\.kts")
_TEMPORARY = ".tmp"
_DAMAGES_KEPT = 32


@dataclass
class Segment:
    """One file. ``size`` in bytes, never less than what the file takes."""

    files: Files
    name: str
    number: int
    coarse: bool
    size: int = 0
    frames: list[tuple[Frame, int]] = field(default_factory=list)
    """With the hot window's sequence number of its first row."""
    last_ms: int = 0

    def add(self, frame: Frame, first_seq: int) -> None:
        self.last_ms = max(self.last_ms, frame.last_ms)
        self.frames.append((frame, first_seq))


class Archive:
    def __init__(
        self,
        disk: Files | None,
        *,
        max_bytes: int,
        retention_ms: int,
        coarse_step_ms: int,
    ) -> None:
        self._disk = disk
        self._memory = MemoryFiles()
        self._files: Files = self._memory
        self._max_bytes = max_bytes
        self._retention_ms = retention_ms
        self._step_ms = coarse_step_ms
        self.segments: tuple[Segment, ...] = ()
        self._current: Segment | None = None
        self._number = 0
        self._damages: deque[str] = deque(maxlen=_DAMAGES_KEPT)
        self.damage_count = 0
        self._retry_ms = FIRST_RETRY_MS
        self._failed_ms: int | None = None
        self.stopping = Event()
        """Set: nothing that takes long is begun or finished (see ``coarsen``)."""
        self.why = "no directory is configured"
        if disk is not None:
            try:
                self._attach(disk)
            except OSError as error:
                self.why = _text(error)

    @property
    def on_disk(self) -> bool:
        return self._files is not self._memory

    @property
    def damages(self) -> tuple[str, ...]:
        return tuple(self._damages)

    def bytes_in(self, *, disk: bool) -> int:
        return sum(s.size for s in self.segments if (s.files is not self._memory) is disk)

    def note_damage(self, segment: Segment, what: str) -> None:
        text = f"{segment.name}: {what}"
        if text not in self._damages:
            self._damages.append(text)
            self.damage_count += 1

    def write(self, data: bytes, first_seq: int, now_ms: int) -> bool:
        """Append a frame; False when it is larger than all the room there is.

        A failing disk is no error here: the frame goes to memory and ``why`` says so.
        """
        self._retry(now_ms)
        frame = parse_header(data, 0)
        if not self.on_disk:
            return self._append(data, frame, first_seq)
        try:
            written = self._append(data, frame, first_seq)
        except OSError as error:
            self._degrade(error, now_ms)
            return self._append(data, frame, first_seq)
        if written and self._current is not None:
            try:
                self._current.files.sync(self._current.name)
            except OSError as error:  # the frame is there to read, perhaps not to stay
                self._degrade(error, now_ms)
            else:
                self._retry_ms, self._failed_ms = FIRST_RETRY_MS, None
        return written

    def _append(self, data: bytes, frame: Frame, first_seq: int) -> bool:
        if not self._make_room(self._files, len(data)):
            return False
        segment = self._writable(frame)
        offset = segment.size
        # Counted first: after an error a part of it may be there, and nothing follows it.
        segment.size += len(data)
        segment.files.append(segment.name, data)
        segment.add(frame._replace(offset=offset), first_seq)
        return True

    def _writable(self, frame: Frame) -> Segment:
        span_ms = self._step_ms * STEPS_PER_SEGMENT
        if self._current is not None:
            first, _ = self._current.frames[0]
            if first.first_ms // span_ms == frame.first_ms // span_ms:
                return self._current
        segment = self._new(self._files)
        self._current = segment
        return segment

    def _new(self, files: Files) -> Segment:
        self._number += 1
        segment = Segment(files, f"full-{self._number:08d}.kts", self._number, coarse=False)
        self.segments = (*self.segments, segment)
        return segment

    def retain(self, now_ms: int) -> None:
        """Drop what is too old, one segment a call: making its history takes a while, and a stop
        must not wait for many. (What is too much goes when room is needed.)"""
        self._retry(now_ms)
        for segment in self.segments:
            factor = COARSE_RETENTION_FACTOR if segment.coarse else 1
            if segment.frames and segment.last_ms < now_ms - factor * self._retention_ms:
                self._expire(segment)
                return

    def _limit(self, files: Files) -> int:
        return min(MEMORY_BYTES, self._max_bytes) if files is self._memory else self._max_bytes

    def _make_room(self, files: Files, need: int) -> bool:
        limit = self._limit(files)
        limit -= limit // COARSE_SHARE
        if need > limit:
            return False
        self._trim(files, limit - need, coarse=False)
        return True

    def _trim(self, files: Files, limit: int, *, coarse: bool) -> None:
        """Let the oldest segments go until the rest takes no more than ``limit`` bytes."""
        while True:
            kept = [s for s in self.segments if s.files is files and s.coarse is coarse]
            if sum(segment.size for segment in kept) <= limit:
                return
            self._expire(kept[0])

    def _expire(self, segment: Segment) -> None:
        """Remove a segment; one of full resolution leaves its coarse history. Raises StoppedError
        before anything has changed."""
        heir = None if segment.coarse or not segment.frames else self._coarsened(segment)
        if segment is self._current:
            self._current = None
        place = [heir] if heir is not None else []
        before, after = _around(self.segments, segment)
        self.segments = (*before, *place, *after)
        with suppress(OSError):  # a file that cannot go now is met again at the next start
            segment.files.unlink(segment.name)

    def _coarsened(self, segment: Segment) -> Segment | None:
        def damaged(frame: Frame, error: DamagedError) -> None:
            self.note_damage(segment, f"byte {frame.offset}: {error}")

        frames = [frame for frame, _ in segment.frames]
        files = segment.files
        name = f"coarse-{segment.number:08d}.kts"
        try:
            with files.reader(segment.name) as read:
                data = coarsen(read, frames, self._step_ms, damaged, self.stopping)
            limit = self._limit(files) // COARSE_SHARE
            if data is None or len(data) > limit:
                return None
            self._trim(files, limit - len(data), coarse=True)
            files.append(name + _TEMPORARY, data)
            files.sync(name + _TEMPORARY)
            files.rename(name + _TEMPORARY, name)
        except OSError as error:
            self.note_damage(segment, f"no coarse history of it: {_text(error)}")
            with suppress(OSError):
                files.unlink(name + _TEMPORARY)
            return None
        heir = Segment(files, name, segment.number, coarse=True, size=len(data))
        heir.add(parse_header(data, 0), OLD_SEQ)
        return heir

    def _degrade(self, error: OSError, now_ms: int) -> None:
        broken = self._current
        self.why = _text(error)
        self._files = self._memory
        self._current = None
        if self._failed_ms is not None:
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)
        self._failed_ms = now_ms
        if broken is not None and not broken.frames:
            self._expire(broken)

    def _retry(self, now_ms: int) -> None:
        """Go back to the disk when its time has come, and take along what memory holds."""
        if self.on_disk or self._disk is None:
            return
        # A clock that was set back must not postpone it.
        if self._failed_ms is not None and 0 <= now_ms - self._failed_ms < self._retry_ms:
            return
        self._current = None
        try:
            self._attach(self._disk)
            for segment in self.segments:
                if segment.files is self._memory:
                    self._move(segment, self._disk)
        except OSError as error:
            self._degrade(error, now_ms)

    def _move(self, segment: Segment, disk: Files) -> None:
        with segment.files.reader(segment.name) as read:
            data = read(0, segment.size)
        if not segment.coarse and not self._make_room(disk, len(data)):
            return
        self._number += 1
        kind = "coarse" if segment.coarse else "full"
        name = f"{kind}-{self._number:08d}.kts"
        try:
            disk.append(name, data)
            disk.sync(name)
        except OSError:
            with suppress(OSError):
                disk.unlink(name)
            raise
        moved = replace(segment, files=disk, name=name, number=self._number)
        before, after = _around(self.segments, segment)
        self.segments = (*before, moved, *after)
        segment.files.unlink(segment.name)

    def _attach(self, disk: Files) -> None:
        """Take in the files that are there and not yet known, by their headers."""
        disk.prepare()
        known = {segment.name for segment in self.segments if segment.files is disk}
        found: dict[tuple[int, bool], Segment] = {}
        for name, size in disk.list():
            if name.endswith(_TEMPORARY):
                with suppress(OSError):
                    disk.unlink(name)
            match = _NAME.fullmatch(name)
            if match is None or name in known:
                continue
            segment = Segment(disk, name, int(match[2]), match[1] == "coarse", size)
            self._number = max(self._number, segment.number)
            self._scan(segment)
            found[segment.number, segment.coarse] = segment
        for (number, coarse), segment in sorted(found.items()):
            # Killed between writing the history and removing its segment: it is written anew.
            superseded = coarse and (number, False) in found
            if superseded or not segment.frames:
                with suppress(OSError):
                    disk.unlink(segment.name)
                del found[number, coarse]
        older = tuple(found[key] for key in sorted(found))
        self.segments = older + self.segments
        self._files = disk
        self.why = ""

    def _scan(self, segment: Segment) -> None:
        try:
            with segment.files.reader(segment.name) as read:
                frames, damaged = scan(read, segment.size)
        except OSError as error:
            frames, damaged = [], [_text(error)]
        for frame in frames:
            segment.add(frame, OLD_SEQ)
        for what in damaged:
            self.note_damage(segment, what)


def _around(
    segments: tuple[Segment, ...], one: Segment
) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """The segments before and after ``one``; all of them before where it is gone already."""
    for index, each in enumerate(segments):
        if each is one:
            return segments[:index], segments[index + 1 :]
    return segments, ()


def _text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
