"""What runtimes reported, on disk, so that a daemon that starts again knows it at once.

A runtime reports what kubelet asked for only once: afterwards it shows what koordlet had made of
it. To lose that would mean to scale a quota twice, and to put back a value of ours as the original.

One line is what is known of one pod now, or the uid of one that went, after a CRC of it and its
place. The first line names the boot, since times and cgroups of another boot mean nothing, after
the number of lines that follow: it is written over after each append, so a file never has fewer.
Lines are in the page cache before the runtime gets its answer, which survives kill -9; what ends
the page cache ends the containers too.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

import msgspec
import structlog

from koordlet.decision.names import encodable_all
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.limits import REPORTED_LINE_BYTES

log = structlog.get_logger()

_COMPACT_BYTES = 1 << 20
_COMPACT_FACTOR = 4


class AboutPod(Protocol):
    """A frozen Struct."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=AboutPod)


class Line(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """One of the three."""

    boot_id: str = ""
    pod: T | None = None
    gone: str = ""


_encoder = msgspec.json.Encoder()
_COUNT = 8
"""Hex digits of a number."""


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Without their ends. One that is longer than any of ours comes out empty; the last one, torn
    by a kill, does not come."""
    while raw := file.readline(REPORTED_LINE_BYTES):
        line = raw[:-1]
        while raw and not raw.endswith(b"\n"):
            raw, line = file.readline(REPORTED_LINE_BYTES), b""
        if raw:
            yield line


class ReportedFile(Generic[T]):
    """``kind``: class of what is kept of a pod. ``admit`` bounds what the file says of one; what is
    saved has been bounded before. ``error``: why nothing is written at present, else
    empty. ``damage``: what was wrong with the file that was loaded. Nothing here raises OSError: a
    disk that refuses costs what a restart would otherwise know."""

    def __init__(
        self, path: str, boot_id: str, kind: type[T], admit: Callable[[T], T] | None = None
    ) -> None:
        self._path = path
        self._admit = admit
        self._boot_id = boot_id
        self._decoder = msgspec.json.Decoder(Line[kind])  # type: ignore[valid-type]
        self._saved: dict[str, T] = {}
        self._lines = self._size = 0
        self._whole = 0
        """Length of the file when it was last written anew."""
        self._descriptor = -1
        self.error = self.damage = ""

    def load(self) -> tuple[T, ...]:
        """What was known at the end of the run before, in this boot, as far as it can be read. From
        now on changes are appended."""
        found: dict[str, T] = {}
        try:
            with open(self._path, "rb") as file:
                self._read(file, found)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._failed(error)
            return ()
        if self.damage:
            log.warning("what runtimes reported is damaged", damage=self.damage)
        self._rewrite(found)
        return tuple(found.values())

    def _read(self, file: BinaryIO, found: dict[str, T]) -> None:
        raw_lines = _lines(file)
        head = next(raw_lines, b"")
        promised = 0
        numbered = not head.startswith(b"{")  # lines were not counted before
        if numbered:
            with contextlib.suppress(ValueError):
                promised = int(head[:_COUNT], 16)
            head = head[_COUNT + 1 :]
        first = self._decode(head)
        if first is not None and first.boot_id not in ("", self._boot_id):
            return
        seen = lost = whole = 0
        for seen, raw in enumerate(raw_lines, start=1):
            if numbered and raw[:_COUNT] != _crc(raw, seen):
                continue
            whole += 1
            line = self._decode(raw[_COUNT + 1 :] if numbered else raw)
            lost += line is None
            if line is not None and line.pod is not None:
                pod = line.pod if self._admit is None else self._admit(line.pod)
                found[pod.uid] = pod
            if line is not None:
                found.pop(line.gone, None)
        lost += max(promised, seen) - whole
        begins = first is not None and bool(first.boot_id)
        if lost or not begins:
            what = f"{lost} lines are" if begins else "the beginning is"
            self.damage = (
                f"{self._path}: {what} missing or damaged. What kubelet asked for may be unknown "
                "for some pods, so that their values are taken for it: restart the pods that run "
                "since before, or look at `koordlet hooks POD`"
            )

    def _decode(self, raw: bytes) -> Line[T] | None:
        try:
            line: Line[T] = self._decoder.decode(raw)
        except UNREADABLE:
            return None
        return line

    def save(self, pods: Mapping[str, T], uids: Iterable[str]) -> None:
        """``uids``: those of ``pods`` that may have changed, or are no longer in it."""
        lines: list[Line[T]] = []
        for uid in uids:
            pod, old = pods.get(uid), self._saved.get(uid)
            if pod is None and old is not None:
                lines.append(Line(gone=uid))
                del self._saved[uid]
            elif pod is not None and pod is not old:
                lines.append(Line(pod=pod))
                self._saved[uid] = pod
        if not lines:
            return
        if self._descriptor < 0 or self._size > _COMPACT_BYTES + _COMPACT_FACTOR * self._whole:
            self._rewrite(dict(self._saved))
        else:
            self._append(lines)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rewrite(self, pods: dict[str, T]) -> None:
        lines = [Line(pod=pod) for pod in pods.values()]
        unfinished = f"{self._path}.new"
        self.close()
        self._saved = pods
        head = b"%08x %s\n" % (len(lines), _encode(Line[T](boot_id=self._boot_id)))
        data = head + _numbered(lines, 1)
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            os.rename(unfinished, self._path)
            self._descriptor = os.open(self._path, os.O_WRONLY)
        except OSError as error:
            self._failed(error)
        else:
            self._lines, self._size, self._whole = len(lines), len(data), len(data)
            self.error = ""

    def _append(self, lines: list[Line[T]]) -> None:
        data = _numbered(lines, self._lines + 1)
        try:
            if os.pwrite(self._descriptor, data, self._size) != len(data):
                # The next change writes everything anew.
                self.close()
                return
            self._lines += len(lines)
            self._size += len(data)
            os.pwrite(self._descriptor, b"%08x" % self._lines, 0)
        except OSError as error:
            self.close()
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        text = f"{self._path}: {error.strerror}; after a restart pods may be known less well"
        if text != self.error:
            log.warning("what runtimes report cannot be kept", error=text)
        self.error = text


def _encode(line: Line[Any]) -> bytes:
    try:
        return _encoder.encode(line)
    except UnicodeEncodeError:  # no runtime tells of such a name
        return _encoder.encode(encodable_all(msgspec.to_builtins(line)))


def _numbered(lines: Iterable[Line[Any]], first: int) -> bytes:
    parts = []
    for number, line in enumerate(lines, start=first):
        text = b" " + _encode(line)
        parts.append(_crc(b"%08x%s" % (0, text), number) + text + b"\n")
    return b"".join(parts)


def _crc(raw: bytes, number: int) -> bytes:
    """The record on the line ``raw``, as it is in the file."""
    return b"%08x" % zlib.crc32(raw[_COUNT:], number)
