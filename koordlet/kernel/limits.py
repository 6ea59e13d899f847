"""Writes of memory limits that may make the kernel reclaim, or kill, before they return.

Linux takes the value first, then reclaims in the writer's context until usage is below it: 3 s for
35 MiB that go to swap. Since 6.16 it leaves that to the next allocation where the descriptor has
O_NONBLOCK; older kernels ignore the flag, so there a thread waits instead of the event loop.
"""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError

NONBLOCK_SINCE = (6, 16)
WAIT_S = 0.004
"""Seconds that the caller waits for the kernel to have taken a value."""
_NEAR = 0.9
"""Share of a limit that a group may use without making whoever sets that limit reclaim."""
_UNLIMITED = (b"max", b"-1")
_USED = {
    "memory.high": "memory.current",
    "memory.max": "memory.current",
    "memory.limit_in_bytes": "memory.usage_in_bytes",
}
THREADS = 4
"""Writes for which the kernel may reclaim at a time; further ones are refused with EAGAIN."""


def knows_nonblock(release: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= NONBLOCK_SINCE


class LimitWriter:
    """``release`` of the kernel."""

    def __init__(self, release: str) -> None:
        self._nonblock = knows_nonblock(release)
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: list[Future[None]] = []
        """Writes whose caller has gone on."""

    def write(self, path: str, data: bytes) -> None:
        """Return as soon as the file has the value. Raises OSError, and that with EAGAIN where the
        kernel has not taken it within ``WAIT_S``: it may take it later."""
        if self._nonblock or not _may_reclaim(path, data):
            _write(path, data)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "koordlet-limits")
        self._waiting = [each for each in self._waiting if not each.done()]
        if len(self._waiting) >= THREADS:
            raise _not_taken(path)
        before = _read(path)
        future: Future[None] = self._pool.submit(_write, path, data)
        try:
            future.result(WAIT_S)
        except NotDoneError:
            if not future.cancel():
                self._waiting.append(future)
            if _read(path) == before:
                raise _not_taken(path) from None


def _not_taken(path: str) -> OSError:
    return OSError(errno.EAGAIN, "the kernel reclaims memory before it takes the limit", path)


def _may_reclaim(path: str, data: bytes) -> bool:
    """Return whether the group uses as much as that, or nobody can tell: only then is it worth to
    hand the value to a thread, which a busy machine may not run in time."""
    value = data.strip()
    if value in _UNLIMITED:
        return False
    directory, _, name = path.rpartition("/")
    try:
        return int(_read(f"{directory}/{_USED[name]}")) > _NEAR * int(value)
    except (OSError, ValueError, KeyError):
        return True


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.write(descriptor, data)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)
