"""The journal's other files: the lock, and a kept copy of a damaged journal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

_ASIDE = ".damaged-"
_LARGEST_ASIDE_BYTES = 16 * 1024 * 1024


class JournalBusyError(Exception):
    """Another process holds the journal: the daemon, or a restore."""


def lock(path: str) -> int:
    """Descriptor of the lock. Raises OSError where the directory cannot be written."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise JournalBusyError(f"{path}: in use by another koordlet process") from error
    return fd


def keep_aside(path: str) -> str:
    """Give a damaged journal a second name, so that it can be looked at once a new one has taken
    its place. One is kept. Returns that name; empty where there is nothing to keep."""
    with contextlib.suppress(OSError):
        if 0 < os.stat(path).st_size <= _LARGEST_ASIDE_BYTES:
            for older in _aside(path):
                os.unlink(older)
            name = path + _ASIDE + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            os.link(path, name)
            return name
    return ""


def kept_aside(path: str) -> str:
    """The damaged file that is kept of the journal at ``path``; empty where there is none."""
    with contextlib.suppress(OSError):
        return max(_aside(path), default="")
    return ""


def _aside(path: str) -> list[str]:
    directory, name = os.path.split(path)
    found = (each for each in os.listdir(directory) if each.startswith(name + _ASIDE))
    return [os.path.join(directory, each) for each in found]


def fsync_directory(path: str) -> None:
    """Of the file at ``path``. Raises OSError."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
