"""Faults by script: errors, short reads and vanishing files at chosen calls."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import BinaryIO, Literal

Op = Literal[
    "read",
    "write",
    "open",
    "mkdir",
    "rmdir",
    "listdir",
    "inode",
    "watch",
    "psi",
    "append",
    "fsync",
    "rename",
    "replace",
    "unlink",
    "prctl",
    "affinity",
    "signal",
    "netlink",
    "perf",
    "hide",
]


@dataclass(eq=False)
class Fault:
    """Strikes calls of ``op`` on a path that matches ``path_glob``: the first ``after`` are let
    through, the next ``times`` (None: all) fail with ``errno`` or, for reads, return only
    ``keep_bytes``. ``hits`` counts the strikes. ``run`` is called at each strike."""

    path_glob: str
    op: Op
    errno: int = errno.EIO
    times: int | None = 1
    after: int = 0
    keep_bytes: int | None = None
    run: Callable[[], None] | None = None
    hits: int = 0

    def strikes(self, op: str, path: str) -> bool:
        if op != self.op or not fnmatchcase(path, self.path_glob):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


@dataclass(eq=False)
class Faults:
    """The script of one host."""

    active: list[Fault] = field(default_factory=list)

    def add(
        self,
        path_glob: str,
        *,
        op: Op,
        errno: int = errno.EIO,
        times: int | None = 1,
        after: int = 0,
    ) -> Fault:
        """Calls fail with ``errno`` before they reach the kernel."""
        return self._keep(Fault(path_glob, op, errno, times, after))

    def short_read(
        self, path_glob: str, keep_bytes: int, *, times: int | None = 1, after: int = 0
    ) -> Fault:
        """Reads return only the first ``keep_bytes``."""
        return self._keep(Fault(path_glob, "read", 0, times, after, keep_bytes=keep_bytes))

    def hide(self, path_glob: str) -> Fault:
        """What matches is out of sight until the fault is taken away, as below a mount point whose
        file system was unmounted. What is open already goes on to work."""
        return self._keep(Fault(path_glob, "hide", times=None))

    def hides(self, path: str) -> bool:
        return any(fault.strikes("hide", path) for fault in self.active)

    def before(
        self,
        path_glob: str,
        run: Callable[[], None],
        *,
        op: Op,
        times: int | None = 1,
        after: int = 0,
    ) -> Fault:
        """``run`` is called just before the call goes on: a group that vanishes between two
        calls, a second writer that is faster."""
        return self._keep(Fault(path_glob, op, 0, times, after, run=run))

    def clear(self) -> None:
        self.active.clear()

    def check(self, op: Op, path: str) -> None:
        """Raises what the script wants raised at this call."""
        for fault in tuple(self.active):
            if fault.keep_bytes is None and fault.strikes(op, path):
                if fault.run is not None:
                    fault.run()
                else:
                    raise OSError(fault.errno, os.strerror(fault.errno), path)

    def shorten(self, path: str, data: bytes) -> bytes:
        for fault in self.active:
            if fault.keep_bytes is not None and fault.strikes("read", path):
                return data[: fault.keep_bytes]
        return data

    def _keep(self, fault: Fault) -> Fault:
        self.active.append(fault)
        return fault


class FaultyFiles:
    """Ordinary files on a real file system, failing by the same script: ENOSPC on append, an
    fsync or a rename that errors, a disk that is full for a while."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def open(self, path: str, mode: str = "rb") -> BinaryIO:
        self._faults.check("open", path)
        return open(path, mode)  # type: ignore[return-value]

    def append(self, path: str, data: bytes) -> None:
        self._faults.check("append", path)
        with open(path, "ab") as file:
            file.write(data)

    def fsync(self, path: str) -> None:
        self._faults.check("fsync", path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        self._faults.check("rename", target)
        os.replace(source, target)
