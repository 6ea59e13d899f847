"""The files of the models, one each. Everything here does I/O: for a worker thread."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from koordlet.decision.names import shown
from koordlet.prediction.checkpoint import MAX_BYTES, CheckpointError
from koordlet.prediction.subject import Subject

MAX_MODELS = 1024
"""Twice the most pods that a kubelet takes: 3 MiB of models, of seasonal ones 20."""
DIRECTORY = ""
"""In place of a uid: the directory itself, with all that may be in it."""
_NAME = frozenset(string.ascii_letters + string.digits + "-._:")
_NAME_LENGTH = 200
_UNFINISHED = ".tmp"


class Failed(NamedTuple):
    """What could not be used, read or written, and why."""

    path: str
    reason: str


Failures = Mapping[str, Failed]
"""By uid."""


class Loaded(NamedTuple):
    """``refused``: files that make no model. ``unread``: those that could not be read this time,
    and may well be good."""

    subjects: dict[str, Subject]
    refused: tuple[Failed, ...]
    unread: Failures


Decode = Callable[[bytes], Subject]
"""Raises CheckpointError."""


def can_be_saved(uid: str) -> bool:
    """A uid comes from whoever makes cgroups, and becomes the name of a file."""
    is_name = _NAME.issuperset(uid) and not uid.startswith(".") and not uid.endswith(_UNFINISHED)
    return is_name and 0 < len(uid) <= _NAME_LENGTH


def load(directory: str, decode: Decode, wanted: Collection[str] = (DIRECTORY,)) -> Loaded:
    """All models there are, or those ``wanted``. A file that makes none is removed, as is one that
    was never finished."""
    names = wanted
    if DIRECTORY in wanted:
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            names = ()
        except OSError as error:
            return Loaded({}, (), {DIRECTORY: Failed(shown(directory), _reason(error))})
    subjects: dict[str, Subject] = {}
    refused: list[Failed] = []
    unread: dict[str, Failed] = {}
    for name in sorted(names):
        path = os.path.join(directory, name)
        if name.endswith(_UNFINISHED):
            _unlink(path)
        elif len(subjects) + len(unread) < MAX_MODELS and can_be_saved(name):
            try:
                subjects[name] = decode(_read(path))
            except CheckpointError as error:
                refused.append(Failed(shown(path), str(error)))
                _unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                unread[name] = Failed(shown(path), _reason(error))
    return Loaded(subjects, tuple(refused), unread)


def save(
    directory: str, files: Iterable[tuple[str, bytes]], *, is_durable: bool = True
) -> Failures:
    """Replaces each as a whole; those that failed are as they were. ``is_durable``: also after a
    power cut. Raises OSError where there can be no directory."""
    os.makedirs(directory, mode=0o750, exist_ok=True)
    failed: dict[str, Failed] = {}
    for uid, data in files:
        path = os.path.join(directory, uid)
        try:
            _replace(path, data, is_durable=is_durable)
        except OSError as error:
            failed[uid] = Failed(shown(path), _reason(error))
    return failed


def remove(directory: str, uids: Iterable[str]) -> None:
    for uid in uids:
        _unlink(os.path.join(directory, uid))


def _replace(path: str, data: bytes, *, is_durable: bool) -> None:
    """Raises OSError."""
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


def _read(path: str) -> bytes:
    """Raises CheckpointError for what is no file of ours, OSError for one that cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CheckpointError("a symbolic link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointError("not a regular file")
        return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
