"""What a disk can do, by direct I/O: the six figures of the kernel's cost model (Linux
``Documentation/admin-guide/cgroup-v2.rst``, io.cost.model).

Several threads keep requests in flight, each with an aligned buffer of its own; the system calls
run without the interpreter's lock. How fast this process can ask at all is measured on a device
that answers at once: a disk that comes near it may be faster, and its figure is a lower bound.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from koordlet.decision.snapshot import BlockDevices

LARGE_BYTES = 128 << 10
"""What the kernel's own script measures bandwidth with (tools/cgroup/iocost_coef_gen.py)."""
SMALL_BYTES = 4 << 10
THREADS = 32
_NEAR = 0.5
"""Of what this process can ask for: above it the figure says as much of it as of the disk."""
_CEILING_S = 0.3
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


@dataclass(frozen=True)
class Rate:
    """``per_s`` of requests of ``request_bytes``. ``own_limit``: the disk may be faster."""

    request_bytes: int
    per_s: float
    own_limit: bool

    @property
    def bytes_per_s(self) -> float:
        return self.per_s * self.request_bytes


@dataclass(frozen=True)
class Load:
    """One kind of request."""

    request_bytes: int
    is_random: bool = False
    is_write: bool = False


def measure(
    descriptor: int, size_bytes: int, load: Load, seconds: float, threads: int = THREADS
) -> Rate:
    """Requests of one kind on the first ``size_bytes`` for ``seconds``, and as many of them at a
    time as there are ``threads``.

    ``descriptor`` is open with O_DIRECT. Raises OSError of the first request that fails, and
    ValueError where not even one request fits.
    """
    found = _requests_per_s(descriptor, size_bytes, load, seconds, threads)
    silent = os.open("/dev/null" if load.is_write else "/dev/zero", os.O_RDWR | os.O_CLOEXEC)
    try:
        ceiling = _requests_per_s(silent, size_bytes, load, min(seconds, _CEILING_S), threads)
    finally:
        os.close(silent)
    return Rate(load.request_bytes, found, found > _NEAR * ceiling)


def _requests_per_s(
    descriptor: int, size_bytes: int, load: Load, seconds: float, threads: int
) -> float:
    slots = size_bytes // load.request_bytes
    if slots < 1:
        raise ValueError(f"{size_bytes} bytes are less than one request of {load.request_bytes}")
    next_slot = _slots(load, slots)
    counts, failures = [0] * threads, list[OSError]()
    started = time.monotonic()
    end = started + seconds

    def work(number: int) -> None:
        operation = os.pwritev if load.is_write else os.preadv
        with mmap.mmap(-1, load.request_bytes) as buffer:
            buffer[:] = os.urandom(load.request_bytes)  # nothing a disk could compress
            try:
                while time.monotonic() < end and not failures:
                    operation(descriptor, [buffer], next_slot() * load.request_bytes)
                    counts[number] += 1
            except OSError as error:
                failures.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.monotonic() - started)


def _slots(load: Load, slots: int) -> Callable[[], int]:
    if load.is_random:
        # A random number of its own for each thread costs no lock.
        return lambda: random.randrange(slots)
    lock, position = threading.Lock(), [-1]

    def following() -> int:
        with lock:
            position[0] = (position[0] + 1) % slots
            return position[0]

    return following


def disks_under(directory: str, devices: BlockDevices) -> tuple[str, ...] | None:
    """Numbers of the disks that hold ``directory``; None where its file system is on none, or does
    not tell (btrfs). Raises OSError."""
    number = os.stat(directory).st_dev
    link = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    return devices.disks.get(os.path.basename(os.path.realpath(link)))


def open_device(path: str) -> tuple[int, int]:
    """Descriptor for direct reads, and the size in bytes. Raises OSError, ENOMEDIUM where there is
    nothing to read: a loop device without a file, a drive without a disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        size_bytes = os.lseek(descriptor, 0, os.SEEK_END)
        if size_bytes < LARGE_BYTES:
            text = f"it holds {size_bytes} bytes, fewer than one request of {LARGE_BYTES}"
            raise OSError(errno.ENOMEDIUM, text, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, size_bytes


def open_nameless(directory: str, size_bytes: int) -> int:
    """A new file of that size for direct I/O, gone when its descriptor is closed, whatever
    happens. Its blocks are written, so that what is measured is not their allocation. Raises
    OSError."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    try:
        descriptor = os.open(directory, flags, 0o600)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        text = (
            f"{error.strerror}: its file system has no files without a name, or no direct I/O to "
            "them; choose a directory on ext4 or xfs"
        )
        raise OSError(error.errno, text, directory) from error
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
        with mmap.mmap(-1, 1 << 20) as buffer:
            buffer[:] = os.urandom(1 << 20)
            for offset in range(0, size_bytes - len(buffer) + 1, len(buffer)):
                os.pwritev(descriptor, [buffer], offset)
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    return descriptor
