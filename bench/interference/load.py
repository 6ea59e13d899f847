"""Services, antagonists and decoys of the bench ``interference``; each is a process of its own:
``python -m bench.interference.load NAME FOLDER``. It does what takes time, prints a line, and
begins with its work when it is given one."""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

_BLOCK = 1 << 20
_FILE_BYTES = 64 << 20
_LOG_BYTES = 1 << 20

Work = Callable[[], None]
"""Goes on until the process is killed."""


def prepare(folder: str) -> None:
    """The file that floods of a disk need, written before anybody is watched."""
    block = mmap.mmap(-1, _BLOCK)
    with _direct(_flooded(folder)) as file:
        for offset in range(0, _FILE_BYTES, _BLOCK):
            os.pwrite(file, block, offset)


def _flooded(folder: str) -> str:
    return f"{os.path.dirname(folder)}/flooded"


@contextmanager
def _direct(path: str) -> Iterator[int]:
    """Past the page cache."""
    descriptor = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _spin(_: str) -> Work:
    def work() -> None:
        while True:
            pass

    return work


def _forks(_: str) -> Work:
    def work() -> None:
        while True:
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

    return work


def _copy(_: str) -> Work:
    source, target = bytearray(32 << 20), bytearray(32 << 20)

    def work() -> None:
        while True:
            target[:] = source

    return work


def _hog(_: str) -> Work:
    """Half of a CPU, in pieces of 5 ms."""

    def work() -> None:
        while True:
            end = time.monotonic() + 0.005
            while time.monotonic() < end:
                pass
            time.sleep(0.005)

    return work


def _each_20_ms(request: Callable[[], None], *, reported: bool) -> Work:
    """``reported``: how long each took goes to standard output, which may be full."""

    def work() -> None:
        os.set_blocking(1, False)
        while True:
            begin = time.monotonic()
            request()
            if reported:
                with suppress(BlockingIOError):
                    os.write(1, struct.pack("<d", time.monotonic() - begin))
            time.sleep(0.017)

    return work


def _service(_: str) -> Work:
    """3 ms of CPU each 20 ms."""

    def request() -> None:
        end = time.process_time() + 0.003
        while time.process_time() < end:
            pass

    return _each_20_ms(request, reported=True)


def _io_service(folder: str) -> Work:
    """4 KiB written past the page cache each 20 ms, as a database's log."""
    block = mmap.mmap(-1, 4096)
    log = os.open(f"{folder}/log", os.O_RDWR | os.O_DIRECT | os.O_CREAT, 0o600)
    os.pwrite(log, mmap.mmap(-1, _LOG_BYTES), 0)
    offset = 0

    def request() -> None:
        nonlocal offset
        os.pwrite(log, block, offset)
        offset = (offset + 4096) % _LOG_BYTES

    return _each_20_ms(request, reported=True)


def _io_flood(folder: str, size: int, *, writes: bool) -> Work:
    """Eight requests at a time keep the disk's queue full. Threads, not children: they end with
    their process, whoever ends it."""

    def requests(turn: int) -> None:
        block = mmap.mmap(-1, size)
        offset = turn * (_FILE_BYTES // 8)
        with _direct(_flooded(folder)) as file:
            while True:
                if writes:
                    os.pwrite(file, block, offset)
                else:
                    os.preadv(file, [block], offset)
                offset = (offset + size) % _FILE_BYTES

    def work() -> None:
        for turn in range(1, 8):
            threading.Thread(target=requests, args=(turn,), daemon=True).start()
        requests(0)

    return work


def _memory_service(_: str) -> Work:
    """4 MiB taken and given back each 20 ms."""

    def request() -> None:
        with mmap.mmap(-1, 4 << 20) as memory:
            for page in range(0, len(memory), 4096):
                memory[page] = 1

    return _each_20_ms(request, reported=True)


def _map_dirty(folder: str) -> Work:
    """Changes each page of a mapped file that is larger than the limit of all."""
    size = 512 << 20

    def work() -> None:
        with open(f"{folder}/mapped", "w+b") as file:
            file.truncate(size)
            with mmap.mmap(file.fileno(), size) as memory:
                while True:
                    for page in range(0, size, 4096):
                        memory[page] = (memory[page] + 1) & 255

    return work


def _cache_grow(folder: str) -> Work:
    """Writes files through the page cache."""
    block = os.urandom(_BLOCK)

    def work() -> None:
        while True:
            with open(f"{folder}/cache", "wb") as file:
                for _ in range(512):
                    file.write(block)

    return work


def _fill(folder: str) -> Work:
    """Clean pages up to the limit of all, so that an antagonist need not fill it first."""
    with open(f"{folder}/filling", "wb") as file:
        file.truncate(448 << 20)  # a hole: nothing is read from a disk

    def work() -> None:
        with open(f"{folder}/filling", "rb", buffering=0) as file:
            while file.read(_BLOCK):
                pass
        os.write(1, b"\n")
        time.sleep(1e6)

    return work


def _light_read(folder: str) -> Work:
    """4 KiB past the page cache each 20 ms."""
    block = mmap.mmap(-1, 4096)
    file = os.open(_flooded(folder), os.O_RDONLY | os.O_DIRECT)
    offset = 0

    def request() -> None:
        nonlocal offset
        os.preadv(file, [block], offset)
        offset = (offset + 4096) % _FILE_BYTES

    return _each_20_ms(request, reported=False)


def _light_fsync(folder: str) -> Work:
    """4 KiB and an fsync, ten times a second."""
    file = os.open(f"{folder}/synced", os.O_RDWR | os.O_CREAT, 0o600)

    def request() -> None:
        os.pwrite(file, bytes(4096), 0)
        os.fsync(file)
        time.sleep(0.08)

    return _each_20_ms(request, reported=False)


def _cache_read(folder: str) -> Work:
    """4 MiB of clean pages each 100 ms, of a file that is larger than the limit of all. With four
    times as much the service reclaims 5 % of its time, which is to be named."""
    size = 448 << 20
    file = os.open(f"{folder}/read", os.O_RDWR | os.O_CREAT, 0o600)
    os.truncate(file, size)
    offset = 0

    def request() -> None:
        nonlocal offset
        for _ in range(4):
            os.pread(file, _BLOCK, offset)
            offset = (offset + _BLOCK) % size
        time.sleep(0.08)

    return _each_20_ms(request, reported=False)


def _own_memory(_: str) -> Work:
    """Memory that is only there."""
    memory = mmap.mmap(-1, 16 << 20)

    def work() -> None:
        for page in range(0, len(memory), 4096):
            memory[page] = 1
        time.sleep(1e6)

    return work


LOADS: Mapping[str, Callable[[str], Work]] = {
    "spin": _spin,
    "forks": _forks,
    "copy": _copy,
    "hog": _hog,
    "service": _service,
    "io-service": _io_service,
    "io-write": lambda folder: _io_flood(folder, 256 << 10, writes=True),
    "io-read": lambda folder: _io_flood(folder, 128 << 10, writes=False),
    "memory-service": _memory_service,
    "map-dirty": _map_dirty,
    "cache-grow": _cache_grow,
    "fill": _fill,
    "light-read": _light_read,
    "light-fsync": _light_fsync,
    "cache-read": _cache_read,
    "own-memory": _own_memory,
}


if __name__ == "__main__":
    begin = LOADS[sys.argv[1]](sys.argv[2])
    os.write(1, b"\n")
    os.read(0, 1)
    begin()
