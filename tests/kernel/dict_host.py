"""A host made of a dictionary: enough for whatever only reads and writes files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence

from koordlet.kernel.host import DirectoryWatch, File, Watch
from koordlet.kernel.perf.events import Perf
from koordlet.kernel.unit_properties import UnitProperties


class DictFile:
    """Reads what the host holds now; ENODEV once the path is gone, as a cgroup file does."""

    def __init__(self, host: DictHost, path: str) -> None:
        self.path = path
        self.closed = False
        self._host = host
        self._generation = host.generation.get(path)

    def read(self) -> bytes:
        assert not self.closed
        if self._host.generation.get(self.path) != self._generation:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), self.path)
        return self._host.files[self.path]

    def write(self, data: bytes) -> None:
        self._host.write(self.path, data)

    def close(self) -> None:
        self.closed = True


def _line(data: bytes) -> bytes:
    return data + b"\n" if data and not data.endswith(b"\n") else data


class DictHost:
    """Files by absolute path, each line with an end. A write replaces the content and is kept in
    ``written``."""

    def __init__(self, files: dict[str, str], directories: tuple[str, ...] = ()) -> None:
        self.files = {path: _line(text.encode()) for path, text in files.items()}
        self.directories = set(directories)
        self.written: list[tuple[str, bytes]] = []
        self.opened: list[DictFile] = []
        self.generation = dict.fromkeys(self.files, 0)

    def make_anew(self, path: str, text: str) -> None:
        """As if the cgroup had been removed and made again."""
        self.files[path] = _line(text.encode())
        self.generation[path] = self.generation.get(path, 0) + 1

    def remove(self, path: str) -> None:
        del self.files[path]
        self.generation.pop(path)

    def open(self, path: str, *, write: bool = False) -> File:
        self.read(path)
        self.opened.append(DictFile(self, path))
        return self.opened[-1]

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        self.read(path)
        self.files[path] = _line(data)
        self.written.append((path, data))

    def write_limit(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def listdir(self, path: str) -> list[str]:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        under = path + "/"
        everything = {*self.files, *self.directories}
        return sorted({p[len(under) :].split("/")[0] for p in everything if p.startswith(under)})

    def subdir_inodes(self, path: str) -> dict[str, int]:
        return {name: self.inode(f"{path}/{name}") for name in self.subdirs(path)}

    def subdirs(self, path: str) -> list[str]:
        return [name for name in self.listdir(path) if f"{path}/{name}" not in self.files]

    def exists(self, path: str) -> bool:
        under = path + "/"
        return any(p == path or p.startswith(under) for p in (*self.files, *self.directories))

    def mkdir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.directories.add(path)

    def rmdir(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.directories.remove(path)

    def inode(self, path: str) -> int:
        return len(path)

    def watch_directories(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "inotify")

    def watch_writes(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "inotify")

    def psi_trigger(self, path: str, trigger: str, on_fire: Callable[[], None]) -> Watch:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    def replace(self, path: str, data: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def unlink(self, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def signal(
        self, pids: Sequence[int], number: int, members: Callable[[], Collection[int]]
    ) -> None:
        raise NotImplementedError

    def sched_core(self, command: int, pid: int, scope: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "prctl")

    def unit_properties(self) -> UnitProperties:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "D-Bus")

    def perf(self) -> Perf:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "perf_event_open")

    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 0.0
