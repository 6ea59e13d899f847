"""The few file operations the store needs, so that memory can stand in for a disk and a test
for a failing one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Read = Callable[[int, int], bytes]
"""``read(offset, length)``: short at the end of the file."""


class Files(Protocol):
    """A flat directory of append-only files. Every method raises OSError."""

    def prepare(self) -> None:
        """Create the directory where it is missing."""
        ...

    def list(self) -> list[tuple[str, int]]:
        """Name and size in bytes of every file, sorted by name."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Add to the end, creating the file. An error may leave a part of ``data`` behind."""
        ...

    def sync(self, name: str) -> None:
        """Return once the content and the name are on stable storage."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; on stable storage when it returns."""
        ...

    def unlink(self, name: str) -> None: ...

    def reader(self, name: str) -> AbstractContextManager[Read]: ...


class DiskFiles:
    """``Files`` below ``directory``. No descriptor stays open between calls."""

    def __init__(self, directory: str, mode: int = 0o640) -> None:
        """``mode``: of the files it makes."""
        self.directory = directory
        self._mode = mode

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def prepare(self) -> None:
        os.makedirs(self.directory, mode=0o750, exist_ok=True)

    def list(self) -> list[tuple[str, int]]:
        with os.scandir(self.directory) as entries:
            return sorted((e.name, e.stat().st_size) for e in entries if e.is_file())

    def append(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path(name), flags, self._mode)
        try:
            rest = memoryview(data)
            while rest:  # a filling disk takes a part first and refuses the rest
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    def sync(self, name: str) -> None:
        _sync(self._path(name))
        _sync(self.directory)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))
        _sync(self.directory)

    def unlink(self, name: str) -> None:
        os.unlink(self._path(name))

    @contextmanager
    def reader(self, name: str) -> Iterator[Read]:
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield lambda offset, length: os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)


class ReadOnlyFiles(DiskFiles):
    """The files of somebody else, such as a daemon that crashed: nothing is changed."""

    def prepare(self) -> None:
        """Raises OSError where the directory is not there or must not be read."""
        os.scandir(self.directory).close()

    def append(self, name: str, data: bytes) -> None:
        raise self._refusal(name)

    def sync(self, name: str) -> None:
        raise self._refusal(name)

    def rename(self, old: str, new: str) -> None:
        raise self._refusal(old)

    def unlink(self, name: str) -> None:
        raise self._refusal(name)

    def _refusal(self, name: str) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), self._path(name))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class MemoryFiles:
    """``Files`` that live and die with the process."""

    def __init__(self) -> None:
        self._content: dict[str, bytearray] = {}

    def _get(self, name: str) -> bytearray:
        try:
            return self._content[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def prepare(self) -> None:
        return None

    def list(self) -> list[tuple[str, int]]:
        return sorted((name, len(data)) for name, data in self._content.items())

    def append(self, name: str, data: bytes) -> None:
        self._content.setdefault(name, bytearray()).extend(data)

    def sync(self, name: str) -> None:
        self._get(name)

    def rename(self, old: str, new: str) -> None:
        self._content[new] = self._get(old)
        del self._content[old]

    def unlink(self, name: str) -> None:
        self._get(name)
        del self._content[name]

    @contextmanager
    def reader(self, name: str) -> Iterator[Read]:
        data = self._get(name)
        yield lambda offset, length: bytes(data[offset : offset + length])
