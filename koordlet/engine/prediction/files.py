"""The files of the models, one each. Everything here does I/O: for a worker thread."""

from __future__ import annotations

import contextlib
import os
import stat
import string
from collections.abc import Callable, Iterable
from typing import NamedTuple

from koordlet.decision.names import shown
from koordlet.prediction.checkpoint import MAX_BYTES, CheckpointError
from koordlet.prediction.subject import Subject

MAX_MODELS = 1024
"""Twice the most pods that a kubelet takes: 3 MiB of models, of seasonal ones 20."""
_NAME = frozenset(string.ascii_letters + string.digits + "-._:")
_NAME_LENGTH = 200
_UNFINISHED = ".tmp"


class Refused(NamedTuple):
    """A file that makes no model, and why."""

    path: str
    reason: str


class Loaded(NamedTuple):
    subjects: dict[str, Subject]
    refused: tuple[Refused, ...]


Decode = Callable[[bytes], Subject]
"""Raises CheckpointError."""


def can_be_saved(uid: str) -> bool:
    """A uid comes from whoever makes cgroups, and becomes the name of a file."""
    is_name = _NAME.issuperset(uid) and not uid.startswith(".") and not uid.endswith(_UNFINISHED)
    return is_name and 0 < len(uid) <= _NAME_LENGTH


def load(directory: str, decode: Decode) -> Loaded:
    """All models there are. A file that makes none is removed, as is one that was never finished.
    A directory that cannot be read has none."""
    subjects: dict[str, Subject] = {}
    refused = []
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return Loaded({}, ())
    except OSError as error:
        return Loaded({}, (Refused(shown(directory), _reason(error)),))
    for name in sorted(names):
        path = os.path.join(directory, name)
        if name.endswith(_UNFINISHED):
            _unlink(path)
        elif len(subjects) < MAX_MODELS and can_be_saved(name):
            try:
                subjects[name] = decode(_read(path))
            except (CheckpointError, OSError) as error:
                refused.append(Refused(shown(path), _reason(error)))
                _unlink(path)
    return Loaded(subjects, tuple(refused))


def save(directory: str, files: Iterable[tuple[str, bytes]], *, is_durable: bool = True) -> None:
    """Replaces each as a whole. Raises OSError at the first that fails; it is then as it was.
    ``is_durable``: also after a power cut."""
    os.makedirs(directory, mode=0o750, exist_ok=True)
    for uid, data in files:
        path = os.path.join(directory, uid)
        unfinished = path + _UNFINISHED
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(unfinished, flags, 0o600), "wb") as file:
                file.write(data)
                if is_durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(unfinished, path)
        except OSError:
            _unlink(unfinished)
            raise


def remove(directory: str, uids: Iterable[str]) -> None:
    for uid in uids:
        _unlink(os.path.join(directory, uid))


def _read(path: str) -> bytes:
    """Raises OSError and CheckpointError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointError("not a regular file")
        return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
