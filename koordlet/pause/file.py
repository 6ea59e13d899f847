"""The pauses on disk, ``pauses`` in the state directory: they outlive reload, restart and reboot.

A file that cannot be read counts as a pause of everything: it was written because somebody wanted
his machine left alone.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from koordlet.pause.model import Pause
from koordlet.protocol.document import UNREADABLE

FILE_NAME = "pauses"
VERSION = 1
MAX_BYTES = 1 << 20


class _Contents(msgspec.Struct, frozen=True):
    version: int
    pauses: tuple[Pause, ...] = ()


class DamagedError(Exception):
    """The file is there and does not say what is paused; the text names it and the reason."""


def load(path: str) -> tuple[Pause, ...]:
    """No file means no pause. Raises DamagedError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise DamagedError(f"{path}: longer than {MAX_BYTES} bytes")
        found = msgspec.json.decode(data, type=_Contents)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise DamagedError(f"{path}: {error}") from error
    if found.version != VERSION:
        raise DamagedError(f"{path}: version {found.version} is of another koordlet")
    return found.pauses


def save(path: str, pauses: tuple[Pause, ...]) -> None:
    """Replaces the file as a whole, on disk when this returns; without pauses there is none.
    Raises OSError; then the file is as it was."""
    directory = os.path.dirname(path)
    if pauses:
        os.makedirs(directory, mode=0o750, exist_ok=True)
        _replace(path, msgspec.json.encode(_Contents(VERSION, pauses)))
    else:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: str, data: bytes) -> None:
    new = f"{path}.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(new, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
