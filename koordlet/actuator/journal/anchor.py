"""What the journal must hold, in a small file beside it.

A journal that ends too early is a whole journal of fewer records, and an empty one is that of a
daemon that has written nothing. So ``journal.anchor`` says how many records there are. It is
written after each append, by one write over what stood there: a kill leaves a journal that holds
at most one batch more than its anchor says, never less. It takes no space when the disk is full.

The file has room for two marks, because a journal that is written anew takes the old one's place by
a rename: before it both are named, afterwards the new one alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple

SUFFIX = ".anchor"
FIRST_FORMAT = 0
"""Generation of a journal of the first format, which has no anchor of its own."""
_NUMBERS = 7
_BOOT = 16
_SLOT = _NUMBERS * 9 + _BOOT + 1 + 8 + 1
_SLOTS = 2


class Mark(NamedTuple):
    """One journal file. ``sequence``, ``crc``: its last record, 0 before the first. ``synced``: the
    last one that is on the disk and not in the page cache alone. ``entries``: how many files it
    has an original of; ``persistent``: of them, those that outlive a reboot. ``exact``: 0 once an
    intent could not be recorded. ``boot``: of the boot id, see ``boot_mark``."""

    generation: int
    sequence: int
    crc: int
    synced: int
    entries: int
    persistent: int
    exact: int
    boot: str


class Anchor(NamedTuple):
    """What the file says. ``damaged``: it is there and says nothing that can be read."""

    marks: tuple[Mark, ...] = ()
    damaged: bool = False


def boot_mark(boot_id: str) -> str:
    return hashlib.blake2b(boot_id.encode(), digest_size=_BOOT // 2).hexdigest()


def load_anchor(journal: str) -> Anchor:
    """That of the journal at this path. Raises OSError where it is there and cannot be read."""
    try:
        with open(journal + SUFFIX, "rb") as file:
            data = file.read(_SLOTS * _SLOT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Anchor()
    slots = [data[start : start + _SLOT] for start in range(0, _SLOTS * _SLOT, _SLOT)]
    marks = tuple(mark for mark in map(_parse, slots) if mark is not None)
    return Anchor(marks, damaged=not marks)


class AnchorFile:
    """The anchor of the one process that may write, opened at the first ``save``."""

    def __init__(self, journal: str) -> None:
        self._path = journal + SUFFIX
        self._fd = -1

    def save(self, marks: Sequence[Mark], *, sync: bool = False) -> None:
        """Raises OSError; then the file says what it said before, or nothing that can be read."""
        data = b"".join(map(_format, marks)).ljust(_SLOTS * _SLOT)
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.pwrite(self._fd, data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        if sync:
            os.fsync(self._fd)

    def is_gone(self) -> bool:
        """Whether somebody has taken the file away since it was opened."""
        if self._fd < 0:
            return False
        with contextlib.suppress(OSError):
            return os.stat(self._path).st_ino != os.fstat(self._fd).st_ino
        return True

    def close(self) -> None:
        """Idempotent. The next ``save`` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _format(mark: Mark) -> bytes:
    *numbers, boot = mark
    text = b"%08x " * _NUMBERS % tuple(numbers) + boot.encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))


def _parse(slot: bytes) -> Mark | None:
    text, crc = slot[: -(8 + 2)], slot[-(8 + 1) : -1]
    try:
        if len(slot) != _SLOT or int(crc, 16) != zlib.crc32(text):
            return None
        *numbers, boot = text.split()
        generation, sequence, last, synced, entries, persistent, exact = (
            int(number, 16) for number in numbers
        )
    except ValueError:
        return None
    return Mark(
        generation, sequence, last, synced, entries, persistent, exact, boot.decode("ascii")
    )
