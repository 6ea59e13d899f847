"""A journal of what the API server told: what decisions were made from, to make them again.

A file of JSON lines in gzip members, one member for each flush, so that a file whose writer was
killed can be read up to its last flush. The first line names the format, then each line is a change
with its time, its kind and its object without what no decision looks at. ``FILE.1`` is what came
before.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from koord_scheduler.kube.scheduling.loading import LOADED, Loaded, World
from koordlet.kube.answers import decoded
from koordlet.kube.errors import UnusableError
from koordlet.kube.objects import Object
from koordlet.protocol.document import UNREADABLE

FORMAT = "koord-scheduler/journal/v1"
READY = "ready"
"""``k`` of the entry after the first lists: from there on decisions are made."""
_KINDS = {str(each.kind): at for at, each in enumerate(LOADED)}
_MOST_LINE_BYTES = 4 << 20
_MOST_LINES = 50_000_000
_FLUSH_BYTES = 256 << 10
_CONTAINER = ("name", "resources", "ports", "restartPolicy")
_SIZES = ("name", "resources", "allocatedResources")
_DROPPED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
Until = Callable[["Entry", World], bool]
"""Whether the journal is left before this entry takes effect."""


class JournalError(Exception):
    """The file is no journal. The text says what is wrong with it."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """``t``: Unix time. ``k``: plural and group of the kind. ``o``: the object as JSON.
    ``gone``: it was deleted. ``first``: it is of a list, and was there before."""

    t: float
    k: str
    o: msgspec.Raw = msgspec.Raw(b"{}")
    gone: bool = False
    first: bool = False


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    began_s: float = 0.0


class Writer:
    """``most_bytes``: of the file; then it becomes ``FILE.1`` and `full` says that lists are to be
    written anew."""

    def __init__(self, path: str, most_bytes: int, now_s: float) -> None:
        self._path, self._most_bytes = Path(path), most_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self.entries = 0
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        self._listed_bytes = 0
        self._file: BinaryIO = self._path.open("wb")
        self._add(msgspec.json.encode(_Head(FORMAT, now_s)))

    def write(
        self, now_s: float, kind: str, tree: Any, *, gone: bool = False, first: bool = False
    ) -> None:
        """``tree``: the object as it came."""
        raw = msgspec.Raw(msgspec.json.encode(slim(tree)))
        self._add(msgspec.json.encode(Entry(round(now_s, 6), kind, raw, gone, first)))
        self.entries += 1

    def _add(self, line: bytes) -> None:
        self._lines.append(line + b"\n")
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._file.write(gzip.compress(b"".join(self._lines), 6, mtime=0))
            self._file.flush()
            self._lines.clear()
            self._waiting_bytes = 0

    def ready(self, now_s: float) -> None:
        """The first lists are written: from here on decisions are made."""
        self.write(now_s, READY, {})
        self.flush()
        self._listed_bytes = self._file.tell()

    @property
    def full(self) -> bool:
        """Lists alone never fill it, or it would begin anew for ever."""
        size = max(self._most_bytes, 2 * self._listed_bytes)
        return self._listed_bytes > 0 and self._file.tell() >= size

    def turn(self, now_s: float) -> None:
        """Begins anew; write all lists after it."""
        self.close()
        os.replace(self._path, f"{self._path}.1")
        self._begin(now_s)

    def close(self) -> None:
        self.flush()
        self._file.close()


def slim(tree: Any) -> Any:
    """Without what no decision looks at: environment, commands and images of containers may hold
    secrets too."""
    if not isinstance(tree, Mapping):
        return tree
    meta = dict(tree.get("metadata") or {})
    meta.pop("managedFields", None)
    if _DROPPED_ANNOTATION in (meta.get("annotations") or {}):
        meta["annotations"] = {
            k: v for k, v in meta["annotations"].items() if k != _DROPPED_ANNOTATION
        }
    found = {**tree, "metadata": meta}
    spec, status = tree.get("spec"), tree.get("status")
    if isinstance(spec, Mapping) and "containers" in spec:
        found["spec"] = {
            name: [{k: c[k] for k in _CONTAINER if k in c} for c in value]
            if name in ("containers", "initContainers")
            else value
            for name, value in spec.items()
            if name not in ("ephemeralContainers", "securityContext", "imagePullSecrets")
        }
    if isinstance(status, Mapping):
        found["status"] = {
            name: [{k: c[k] for k in _SIZES if k in c} for c in value if isinstance(c, Mapping)]
            if name in ("containerStatuses", "initContainerStatuses")
            else value
            for name, value in status.items()
            if name not in ("images", "nodeInfo")
        }
    return found


class Journal(NamedTuple):
    began_s: float
    entries: Iterator[Entry]


def read(path: str) -> Journal:
    """Raises JournalError, also while the entries are read. A torn end is the end."""
    lines = _lines(path)
    try:
        head = msgspec.json.decode(next(lines, b"{}"), type=_Head)
    except UNREADABLE:
        head = _Head()
    if head.format != FORMAT:
        raise JournalError(f"it does not begin with {FORMAT}: `koord-scheduler record` writes one")
    return Journal(head.began_s, _entries(lines))


def _entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    for number, line in enumerate(lines, 2):
        if number > _MOST_LINES:
            raise JournalError(f"more than {_MOST_LINES} lines")
        try:
            yield decoder.decode(line)
        except UNREADABLE as error:
            raise JournalError(f"line {number}: {error}") from None


def _lines(path: str) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            while True:
                try:
                    line = file.readline(_MOST_LINE_BYTES + 1)
                except (EOFError, zlib.error):
                    return
                if len(line) > _MOST_LINE_BYTES:
                    raise JournalError(f"a line of more than {_MOST_LINE_BYTES} bytes")
                if not line.endswith(b"\n"):
                    return
                yield line
    except gzip.BadGzipFile:
        raise JournalError("it is not compressed as journals are") from None
    except OSError as error:
        raise JournalError(error.strerror or str(error)) from None


def opened(entry: Entry) -> tuple[Loaded, Object] | None:
    """The object; None for a kind that is not known here. Raises JournalError."""
    at = _KINDS.get(entry.k)
    if at is None:
        return None
    try:
        return LOADED[at], decoded(LOADED[at].kind, entry.o)
    except UnusableError as error:
        raise JournalError(str(error)) from None


def play(
    journal: Journal, world: World, at_s: float | None = None, until: Until | None = None
) -> float:
    """Takes what happened up to ``at_s`` into the world, or all. Returns the time of the last
    entry that took effect. Raises JournalError."""
    now_s = journal.began_s
    for entry in journal.entries:
        if at_s is not None and entry.t > at_s:
            break
        if until is not None and until(entry, world):
            break
        found = opened(entry)
        if found is not None:
            world.take(*found, gone=entry.gone)
        now_s = entry.t
    world.settle()
    return now_s
