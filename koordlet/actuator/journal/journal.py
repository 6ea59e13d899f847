"""The journal of originals: what koordlet found before its first write of each file.

One append-only file of lines (``journal_lines``), beside it a small one that says how many there
must be (``journal_anchor``):

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
- ``Lost``: the original of a file of ours was lost with a damaged journal.

A kill can tear the last line: what it was to tell was never written to the kernel, so it is cut
off. ``journal_load`` says what any other damage costs. A damaged journal is written anew from what
is left of it, with a note of the damage in its first line, and kept aside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import structlog

from koordlet.actuator.journal.anchor import AnchorFile, Mark, boot_mark
from koordlet.actuator.journal.files import (
    JournalBusyError,
    fsync_directory,
    keep_aside,
    lock,
)
from koordlet.actuator.journal.lines import (
    Boot,
    Change,
    Intent,
    Line,
    Lost,
    Original,
    Released,
    write_line,
)
from koordlet.actuator.journal.load import Contents, Entry, fold, load
from koordlet.actuator.merge import Key
from koordlet.kernel.host_files import PERSISTENT

__all__ = [
    "FILE_NAME",
    "Boot",
    "Contents",
    "Entry",
    "Intent",
    "Journal",
    "JournalBusyError",
    "Original",
    "Released",
    "load",
]

log = structlog.get_logger()

FILE_NAME = "journal"
_COMPACT_BYTES = 128 * 1024
_COMPACT_FACTOR = 4


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
        self._anchor = AnchorFile(path)
        self._compact_at = _COMPACT_BYTES
        self._torn = False
        self._owed: list[Change] = []
        self.problem = ""
        """Why the latest record could not be written, else empty."""
        self.damage: tuple[str, ...] = ()
        """What is wrong with the file that was found, or with an earlier one of this boot."""
        self.aside = ""
        """Where that file is kept."""
        try:
            self._lock_fd = lock(path)
        except OSError as error:
            log.warning("journal cannot be written", path=path, error=str(error))
        try:
            self._take(load(path, boot_id))
            self._open_if_possible()
        except BaseException:
            self.close()
            raise

    @property
    def entries(self) -> Mapping[Key, Entry]:
        return self._entries

    @property
    def lost(self) -> Mapping[Key, Lost]:
        """Files that may hold a value of ours, whose original is missing."""
        return self._lost

    def begin(self, originals: Sequence[Original], intents: Sequence[Intent]) -> None:
        """Record what is about to be written for the first time, in one fsync.

        Where records are missing, one of them may have been about such a file: then its original
        is doubtful. Raises OSError (ENOSPC, EROFS, EIO ...): then nothing of it may be written.
        """
        if self.incomplete:
            originals = [
                each if each.key in self._entries else msgspec.structs.replace(each, doubtful=True)
                for each in originals
            ]
        lines: list[Change] = [*originals, *intents]
        self._append(lines)
        os.fsync(self._fd)
        self._took(lines, synced=True)

    def remember(self, originals: Sequence[Original], intents: Sequence[Intent]) -> None:
        """Count values in that the kernel has copied from ours and that go back at once, although
        the disk refuses their record. They go before the next lines that it takes; a kill before
        that leaves them where they are, as doing nothing would."""
        lines: list[Change] = [*originals, *intents]
        self._owed += lines
        self._took(lines)

    def intend(self, intents: Sequence[Intent]) -> None:
        """Record further values of files whose original is on disk.

        Where the disk is full, the anchor is overwritten in place to say that intents are missing;
        raises OSError when even that fails, and then nothing may be written.
        """
        must_last = any(line.resource in PERSISTENT for line in intents)
        try:
            self._append(intents)
            if must_last:
                os.fsync(self._fd)
        except OSError:
            self._mark_inexact()
        self._took(intents, synced=must_last)

    def release(self, keys: Iterable[Key]) -> None:
        """Forget files. What the disk does not take goes before the next lines that it takes;
        until then it is harmless: restoring an original twice changes nothing."""
        lines = [Released(*key) for key in keys]
        try:
            self._append(lines)
        except OSError:
            self._owed += lines
        self._took(lines)

    def forgive(self) -> None:
        """Forget that records are missing, and what was lost with them: somebody has looked after
        it. Raises OSError."""
        self.damage, self.incomplete = (), False
        self._lost.clear()
        for key, entry in self._entries.items():
            original = msgspec.structs.replace(entry.original, doubtful=False)
            self._entries[key] = msgspec.structs.replace(entry, original=original)
        if self._fd >= 0:
            self._rewrite()

    def inspect(self) -> str:
        """Compare the file with what was written to it; where it differs, keep it aside and write
        it anew from memory. Returns what was wrong, else an empty text. Raises OSError."""
        if self._fd < 0:
            return ""
        with contextlib.suppress(FileNotFoundError):
            with open(self.path, "rb") as file:
                data = file.read()
            same = (len(data), zlib.crc32(data)) == (self._size, self._content_crc)
            if same and not self._is_replaced() and not self._anchor.is_gone():
                return ""
        aside = keep_aside(self.path)
        self._anchor.close()
        self._rewrite()
        text = "another process changed the journal; koordlet has rewritten it, and nothing is lost"
        text += f" (the changed file is {aside})" if aside else ""
        log.warning(text, path=self.path)
        return text

    def close(self) -> None:
        """Idempotent; the lock goes with it."""
        if self._owed and self._lock_fd >= 0:
            with contextlib.suppress(OSError):  # opened now, where the disk was full at the start
                self._append(())
                self._save_mark()
        self._anchor.close()
        for name in ("_fd", "_lock_fd"):
            if (fd := getattr(self, name)) >= 0:
                os.close(fd)
                setattr(self, name, -1)

    def _take(self, contents: Contents) -> None:
        self.damaged_lines = contents.damaged_lines
        self.damage = contents.damage
        self.aside = contents.aside
        self.incomplete = contents.incomplete
        self.other_boot = contents.other_boot
        self.exact = self._loaded_exact = contents.exact
        self._entries: dict[Key, Entry] = dict(contents.entries)
        self._lost: dict[Key, Lost] = dict(contents.lost)
        self.moved: set[Key] = set(self._entries)
        """Files that have come or gone since somebody emptied it."""
        self._found: Contents = contents

    def _open_if_possible(self) -> None:
        try:
            self._open()
        except OSError as error:
            self.problem = str(error)

    def _open(self) -> None:
        if self._lock_fd < 0:
            # The directory could not be written before; meanwhile somebody else may have come.
            try:
                self._lock_fd = lock(self.path)
            except JournalBusyError as error:
                raise OSError(errno.EBUSY, str(error), self.path) from error
            self._take(load(self.path, self._boot_id))
        found = self._found
        if found.tail is None:
            if found.is_fresh:
                self.aside = keep_aside(self.path)
            self._rewrite(found.mark)
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, found.tail.size)
            self._content_crc = zlib.crc32(os.pread(fd, found.tail.size, 0))
            # The process before this one may have been killed before it wrote this.
            self._mark = self._counted(found.tail.mark)
            self._anchor.save([self._mark])
        except OSError:
            os.close(fd)
            raise
        self._fd, self._size = fd, found.tail.size

    def _append(self, lines: Sequence[Line]) -> None:
        """Raises OSError: then the file holds what it held."""
        try:
            if self._fd < 0:
                self._open()
            elif self._torn or self._is_replaced():
                self._rewrite()
            data, mark = _encode((*self._owed, *lines), self._mark)
            written = 0
            try:
                while written < len(data):
                    written += os.pwrite(self._fd, data[written:], self._size + written)
            except OSError:
                self._cut()
                raise
        except OSError as error:
            self.problem = str(error)
            raise
        self._size += written
        self._content_crc = zlib.crc32(data, self._content_crc)
        self._mark = mark
        self._owed.clear()
        self.problem = ""

    def _cut(self) -> None:
        """Take a half-written batch away; where that fails too, a new file is needed."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._torn = True

    def _is_replaced(self) -> bool:
        """Whether somebody has taken the file away, or cut it."""
        try:
            found = os.stat(self.path)
        except OSError:
            return True
        return found.st_size < self._size or found.st_ino != os.fstat(self._fd).st_ino

    def _took(self, lines: Sequence[Change], *, synced: bool = False) -> None:
        """Count ``lines`` in, and say in the anchor that they are there."""
        for line in lines:
            fold(self._entries, self._lost, line)
            if isinstance(line, Original | Released):
                self.moved.add(Key(line.cgroup, line.resource))
        if self._fd < 0:
            return
        if synced:
            self._mark = self._mark._replace(synced=self._mark.sequence)
        if any(line.resource in PERSISTENT for line in lines):
            self._mark = self._counted(self._mark)
        self._mark = self._mark._replace(entries=len(self._entries))
        self._save_mark()
        self._compact_if_large()

    def _counted(self, mark: Mark) -> Mark:
        persistent = sum(key.resource in PERSISTENT for key in self._entries)
        return mark._replace(entries=len(self._entries), persistent=persistent)

    def _save_mark(self) -> None:
        """A mark that cannot be written says less than there is, which is no damage."""
        try:
            self._anchor.save([self._mark])
        except OSError as error:
            log.warning("anchor of the journal not written", path=self.path, error=str(error))

    def _mark_inexact(self) -> None:
        if self.exact:
            if self._fd < 0:
                raise OSError(errno.EROFS, self.problem, self.path)
            inexact = self._mark._replace(exact=0)
            self._anchor.save([inexact])
            self._mark, self.exact = inexact, False

    def _compact_if_large(self) -> None:
        if self._size <= self._compact_at:
            return
        try:
            self._rewrite()
        except OSError as error:
            log.warning("journal not compacted", path=self.path, error=str(error))
            self._compact_at = 2 * self._size

    def _lines(self) -> list[Line]:
        """What is in force.

        ``entries`` has every intent of this process, but not those an earlier one could not record.
        """
        head = Boot(self._boot_id, int(self._loaded_exact), self.damage, self.incomplete)
        lines: list[Line] = [head]
        for entry in self._entries.values():
            lines.append(entry.original)
            if entry.ours:
                lines.append(Intent(*entry.original.key, entry.ours, entry.owner))
        lines += self._lost.values()
        return lines

    def _rewrite(self, before: Mark | None = None) -> None:
        """Write what is in force to a new file and put it in place. An OSError leaves the old one.

        ``before``: of the file in place; the open one where it is not given.
        """
        before = before or self._mark
        fresh = Mark(_new_generation(), 0, 0, 0, 0, 0, 1, boot_mark(self._boot_id))
        data, mark = _encode(self._lines(), fresh)
        mark = self._counted(mark._replace(synced=mark.sequence))
        temporary = self.path + ".new"
        # Whichever of the two files a kill leaves in place, the anchor speaks of it.
        self._anchor.save([before, mark], sync=True)
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
            with contextlib.suppress(OSError):
                self._anchor.save([before])
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._torn = fd, len(data), False
        self._mark, self._content_crc = mark, zlib.crc32(data)
        self._save_mark()
        self._owed.clear()  # what is released was not written again
        self.exact = self._loaded_exact
        self._compact_at = max(_COMPACT_BYTES, _COMPACT_FACTOR * self._size)
        with contextlib.suppress(OSError):
            fsync_directory(self.path)


def _encode(lines: Iterable[Line], mark: Mark) -> tuple[bytes, Mark]:
    """``lines`` as they follow the last record of ``mark``, and the mark after them."""
    parts = []
    sequence, crc = mark.sequence, mark.crc
    for line in lines:
        sequence += 1
        data, crc = write_line(line, mark.generation, sequence, crc)
        parts.append(data)
    return b"".join(parts), mark._replace(sequence=sequence, crc=crc)


def _new_generation() -> int:
    return int.from_bytes(os.urandom(4)) or 1
