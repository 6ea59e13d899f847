"""Directories watched for children that come, go or are written (``inotify(7)``), by ctypes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable, Iterator

_IN_MODIFY = 0x2
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_IN_ISDIR = 0x40000000
_MOVES = _IN_CREATE | _IN_DELETE | _IN_MOVED_FROM | _IN_MOVED_TO
WRITES_REST_S = 0.02
"""Seconds between two reads: whoever may write such a file may do so as often as he likes."""

_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name
_READ_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, path: str | None = None) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result


def decode(data: bytes) -> Iterator[tuple[int, int, str]]:
    """(watch descriptor, mask, child name) of each event in one read of an inotify descriptor."""
    offset = 0
    while offset < len(data):
        descriptor, mask, _, length = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        name = data[offset : offset + length].rstrip(b"\0")
        offset += length
        yield descriptor, mask, os.fsdecode(name)


class Inotify:
    """``DirectoryWatch`` on one inotify descriptor that the event loop reads. ``every``: children
    of any kind, not directories alone. ``writes``: files that are written, and nothing else."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[str, str], None],
        *,
        every: bool = False,
        writes: bool = False,
    ) -> None:
        self._kinds = 0 if every or writes else _IN_ISDIR
        self._mask = (_IN_MODIFY if writes else _MOVES) | _IN_ONLYDIR
        self._rest_s = WRITES_REST_S if writes else 0.0
        self._loop = loop
        self._on_event = on_event
        self._path_of: dict[int, str] = {}
        self._watch_of: dict[str, int] = {}
        self._descriptor = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        loop.add_reader(self._descriptor, self._read)

    def add(self, directory: str) -> None:
        watch = _check(
            _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), self._mask), directory
        )
        self._path_of[watch] = directory
        self._watch_of[directory] = watch

    def remove(self, directory: str) -> None:
        watch = self._watch_of.pop(directory, None)
        if watch is not None:
            self._path_of.pop(watch, None)
            # EINVAL when the kernel dropped it first, because the directory is gone.
            _libc.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _go_on(self) -> None:
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if self._rest_s:
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(self._rest_s, self._go_on)
        for watch, mask, name in decode(data):
            if self._descriptor < 0:  # closed by a callback of this very batch
                return
            if mask & _IN_Q_OVERFLOW:
                for directory in tuple(self._watch_of):
                    self._on_event(directory, "")
                continue
            path = self._path_of.get(watch)
            if path is None:
                continue
            if mask & _IN_IGNORED:
                del self._path_of[watch]
                # The same path may be watched again by now, as a new directory.
                if self._watch_of.get(path) == watch:
                    del self._watch_of[path]
            elif not self._kinds or mask & self._kinds:
                self._on_event(path, name)
