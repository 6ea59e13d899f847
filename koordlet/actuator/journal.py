"""The journal of originals: what koordlet found before its first write of each file.

One append-only file of lines, each ``<crc32 of the JSON, 8 hex digits> <JSON>``:

- ``Boot``: the boot id, first line. A reboot takes the cgroups and their values with it, so the
  records of another boot mean nothing, but for those of files on a disk (``PERSISTENT``).
- ``Original``: the bytes found, with the inode of the cgroup. On disk (fsync) before the first
  write of that file; a cgroup made anew under the same path has another inode and keeps its own
  value. A second one for the same file replaces the first (see ``conflict``).
- ``Intent``: every value the file may hold through us from now on. It is in the page cache before
  the write, which is enough: it must survive kill -9, and what ends the page cache ends the
  cgroups as well (not the files on a disk, hence fsync for those). Restore leaves alone what is
  neither the original nor intended.
- ``Released``: the original is back, or the file is no longer ours.

A kill can tear the last line: what it was to tell was never written to the kernel, so it is cut
off. A damaged line elsewhere costs itself alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import structlog

from koordlet.actuator.merge import Key
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.host_files import PERSISTENT

log = structlog.get_logger()

FILE_NAME = "journal"
_COMPACT_BYTES = 128 * 1024
_COMPACT_FACTOR = 4


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """``exact`` is 0 once an intent could not be recorded: then every value counts as ours.

    A digit, so that the line keeps its length when it is overwritten in place.
    """

    boot_id: str
    exact: int = 1


class Original(msgspec.Struct, frozen=True, tag="original", omit_defaults=True):
    """``raw`` is what to write back, ``value`` the same for people. ``since``: unix seconds.

    ``coupled``: journaled because writing another file of the cgroup changes this one too.
    ``computed``: not found in the file, but what it would have held without koordlet.
    ``newest``: the largest inode of the cgroups below a v1 CPU list at that time. Inodes of cgroups
    only grow (kernfs ids), so what has a larger one was made later, with a copy of ours.
    """

    cgroup: str
    resource: Resource
    path: str
    inode: int
    raw: bytes
    value: Value
    owner: str
    since: float
    coupled: bool = False
    computed: bool = False
    newest: int = 0

    @property
    def key(self) -> Key:
        return Key(self.cgroup, self.resource)


class Intent(msgspec.Struct, frozen=True, tag="intent"):
    cgroup: str
    resource: Resource
    values: tuple[Value, ...]
    owner: str


class Released(msgspec.Struct, frozen=True, tag="released"):
    cgroup: str
    resource: Resource


Line = Boot | Original | Intent | Released

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class Entry(msgspec.Struct, frozen=True):
    """A file of ours. ``ours``: the values it may hold through us; empty before the first write."""

    original: Original
    ours: tuple[Value, ...] = ()
    owner: str = ""


class Contents(msgspec.Struct, frozen=True):
    """What a journal file says. ``other_boot``: it is of another boot, and what it says of the
    kernel is left out.

    ``whole_bytes``: length without a torn last line.
    """

    entries: Mapping[Key, Entry]
    exact: bool = True
    damaged_lines: int = 0
    other_boot: bool = False
    whole_bytes: int = 0


class JournalBusyError(Exception):
    """Another process holds the journal: the daemon, or a restore."""


def load(path: str, boot_id: str) -> Contents:
    """Read the journal without touching it; a missing file is an empty journal.

    Raises OSError for one that is there and cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contents({})
    entries: dict[Key, Entry] = {}
    damaged, exact, other_boot = 0, True, False
    *lines, torn = data.split(b"\n")
    whole_bytes = len(data) - len(torn)
    for raw in filter(None, lines):
        line = _parse(raw)
        if line is None:
            damaged += 1
        elif isinstance(line, Boot):
            other_boot = line.boot_id != boot_id
            exact = exact and bool(line.exact)
        else:
            _fold(entries, line)
    if other_boot:
        kept = {key: entry for key, entry in entries.items() if key.resource in PERSISTENT}
        return Contents(kept, exact or not kept, other_boot=True)
    return Contents(entries, exact, damaged, whole_bytes=whole_bytes)


def _parse(raw: bytes) -> Line | None:
    try:
        if int(raw[:8], 16) != zlib.crc32(raw[9:]):
            return None
        line: Line = _decoder.decode(raw[9:])
    except (ValueError, msgspec.MsgspecError):
        return None
    return line


def _format(line: Line) -> bytes:
    text = _encoder.encode(line)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _fold(entries: dict[Key, Entry], line: Original | Intent | Released) -> None:
    key = Key(line.cgroup, line.resource)
    if isinstance(line, Original):
        entries[key] = Entry(line, owner=line.owner)
    elif isinstance(line, Released):
        entries.pop(key, None)
    elif key in entries:
        entries[key] = Entry(entries[key].original, line.values, line.owner)


class Journal:
    """The journal of the one process that may write. ``entries`` is what it says now.

    A directory that cannot be written does not stop the start: each ``begin`` tries again and
    raises. Raises JournalBusyError while another process holds the journal, and OSError when it
    is there but cannot be read: to write then would take our own values for originals.
    """

    def __init__(self, path: str, *, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self._lock_fd = self._fd = -1
        self._compact_at = _COMPACT_BYTES
        self._torn = False
        self._owed: list[Released] = []
        self.problem = ""
        """Why the latest record could not be written, else empty."""
        try:
            self._lock_fd = _lock(path)
        except OSError as error:
            log.warning("journal cannot be written", path=path, error=str(error))
        self._take(load(path, boot_id))
        try:
            self._open()
        except OSError as error:
            self.problem = str(error)

    @property
    def entries(self) -> Mapping[Key, Entry]:
        return self._entries

    def begin(self, originals: Sequence[Original], intents: Sequence[Intent]) -> None:
        """Record what is about to be written for the first time, in one fsync.

        Raises OSError (ENOSPC, EROFS, EIO ...): then nothing of it may be written.
        """
        lines: list[Original | Intent] = [*originals, *intents]
        self._append(lines)
        os.fsync(self._fd)
        for line in lines:
            _fold(self._entries, line)
        self._compact_if_large()

    def intend(self, intents: Sequence[Intent]) -> None:
        """Record further values of files whose original is on disk.

        Where the disk is full, the first line is overwritten in place to say that intents are
        missing; raises OSError when even that fails, and then nothing may be written.
        """
        try:
            self._append(intents)
            if any(line.resource in PERSISTENT for line in intents):
                os.fsync(self._fd)
        except OSError:
            self._mark_inexact()
        for line in intents:
            _fold(self._entries, line)
        self._compact_if_large()

    def release(self, keys: Iterable[Key]) -> None:
        """Forget files. What the disk does not take goes before the next lines that it takes;
        until then it is harmless: restoring an original twice changes nothing."""
        lines = [Released(*key) for key in keys]
        try:
            self._append(lines)
        except OSError:
            self._owed += lines
        for line in lines:
            _fold(self._entries, line)
        self._compact_if_large()

    def close(self) -> None:
        """Idempotent; the lock goes with it."""
        if self._owed and self._fd >= 0:
            with contextlib.suppress(OSError):
                self._append(())
        for name in ("_fd", "_lock_fd"):
            if (fd := getattr(self, name)) >= 0:
                os.close(fd)
                setattr(self, name, -1)

    def _take(self, contents: Contents) -> None:
        self.damaged_lines = contents.damaged_lines
        self.other_boot = contents.other_boot
        self.exact = self._loaded_exact = contents.exact
        self._entries: dict[Key, Entry] = dict(contents.entries)
        self._size = contents.whole_bytes

    def _open(self) -> None:
        if self._lock_fd < 0:
            # The directory could not be written before; meanwhile somebody else may have come.
            try:
                self._lock_fd = _lock(self.path)
            except JournalBusyError as error:
                raise OSError(errno.EBUSY, str(error), self.path) from error
            self._take(load(self.path, self._boot_id))
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if self._entries and self._size == 0:
                self._rewrite()  # of another boot: what is still true goes under this one's name
            else:
                os.ftruncate(self._fd, self._size)
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise
        if self._size == 0:
            _fsync_directory(self.path)

    def _append(self, lines: Sequence[Line]) -> None:
        if self._fd < 0:
            try:
                self._open()
            except OSError as error:
                self.problem = str(error)
                raise
        head: tuple[Line, ...] = () if self._size else (Boot(self._boot_id),)
        data = b"".join(_format(line) for line in (*head, *self._owed, *lines))
        if self._torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError as error:
            self.problem = str(error)
            self._cut(written)
            raise
        self._size += written
        self._torn = False
        self._owed.clear()
        self.problem = ""

    def _cut(self, written: int) -> None:
        """Take a half-written batch away; where that fails too, fence it off."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._size += written
            self._torn = True

    def _mark_inexact(self) -> None:
        if self.exact:
            os.pwrite(self._fd, _format(Boot(self._boot_id, exact=0)), 0)
            self.exact = False

    def _compact_if_large(self) -> None:
        if self._size <= self._compact_at:
            return
        try:
            self._rewrite()
        except OSError as error:
            log.warning("journal not compacted", path=self.path, error=str(error))
            self._compact_at = 2 * self._size

    def _rewrite(self) -> None:
        """Write what is in force to a new file and put it in place. An OSError leaves the old one.

        ``entries`` has every intent of this process, but not those an earlier one could not record.
        """
        lines: list[Line] = [Boot(self._boot_id, exact=int(self._loaded_exact))]
        for entry in self._entries.values():
            lines.append(entry.original)
            if entry.ours:
                lines.append(Intent(*entry.original.key, entry.ours, entry.owner))
        data = b"".join(_format(line) for line in lines)
        temporary = self.path + ".new"
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
                os.rename(temporary, self.path)
            except OSError:
                os.close(fd)
                raise
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        os.close(self._fd)
        self._fd, self._size, self._torn = fd, len(data), False
        self._owed.clear()  # what is released was not written again
        self.exact = self._loaded_exact
        self._compact_at = max(_COMPACT_BYTES, _COMPACT_FACTOR * self._size)
        with contextlib.suppress(OSError):
            _fsync_directory(self.path)


def _lock(path: str) -> int:
    """Descriptor of the lock. Raises OSError where the directory cannot be written."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise JournalBusyError(f"{path}: in use by another koordlet process") from error
    return fd


def _fsync_directory(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
