"""The demo's one directory: lock, files of the arms, and what a killed run left to undo."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import msgspec

from koordlet.protocol.document import UNREADABLE

DIRECTORY = Path("/run/koordlet-demo")
_UNDO = "undo.json"


class BusyError(Exception):
    """Another demo runs on this machine."""


class Workdir:
    """Held exclusively from `acquire` to `release`.

    The directory survives kill -9; the lock does not. So whoever gets the lock and finds files
    finds the remains of a run that could not clean up.
    """

    def __init__(self, path: Path = DIRECTORY) -> None:
        self.path = path
        self._lock: int | None = None

    def acquire(self) -> None:
        """Raises BusyError, or PermissionError without root."""
        while self._lock is None:
            self.path.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise BusyError(f"another demo holds {self.path}: wait for it, or end it") from None
            # The holder before us may have removed the directory between our open and flock.
            if self.path.exists() and os.fstat(lock).st_ino == self.path.stat().st_ino:
                self._lock = lock
            else:
                os.close(lock)

    def release(self) -> None:
        """Remove everything, then let go; idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def fresh(self) -> Path:
        """An empty directory for the files of this run."""
        run = self.path / "arms"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        return run

    def remember(self, undo: list[tuple[str, str]]) -> None:
        """On disk, whole, before the change it describes is made: see ``Stage``."""
        fresh = self.path / "undo.new"
        fresh.write_bytes(msgspec.json.encode(undo))
        fresh.replace(self.path / _UNDO)

    def remembered(self) -> list[tuple[str, str]]:
        """What a killed run had switched on: (subtree_control file, controller)."""
        try:
            return msgspec.json.decode((self.path / _UNDO).read_bytes(), type=list[tuple[str, str]])
        except (FileNotFoundError, *UNREADABLE):
            return []
