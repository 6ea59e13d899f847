"""Services, antagonists and decoys of the bench ``interference``; each is a process of its own:
``python -m bench.interference_load NAME FOLDER``."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

_BLOCK = 1 << 20
_FILE_BYTES = 64 << 20


def _spin(_: str) -> None:
    while True:
        pass


def _forks(_: str) -> None:
    while True:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)


def _copy(_: str) -> None:
    source, target = bytearray(32 << 20), bytearray(32 << 20)
    while True:
        target[:] = source


def _hog(_: str) -> None:
    """Half of a CPU, in pieces of 5 ms."""
    while True:
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            pass
        time.sleep(0.005)


def _service(_: str) -> None:
    """3 ms of CPU each 20 ms."""
    while True:
        end = time.process_time() + 0.003
        while time.process_time() < end:
            pass
        time.sleep(0.017)


def _direct(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT | os.O_CREAT, 0o600)


def _fill(path: str) -> int:
    descriptor = _direct(path, os.O_RDWR)
    block = mmap.mmap(-1, _BLOCK)
    for offset in range(0, _FILE_BYTES, _BLOCK):
        os.pwrite(descriptor, block, offset)
    return descriptor


def _io_service(folder: str) -> None:
    """4 KiB written past the page cache each 20 ms, as a database's log."""
    descriptor = _direct(f"{folder}/log", os.O_RDWR)
    block = mmap.mmap(-1, 4096)
    offset = 0
    while True:
        os.pwrite(descriptor, block, offset)
        offset = (offset + 4096) % _FILE_BYTES
        time.sleep(0.02)


def _io_flood(folder: str, size: int, writes: bool) -> None:
    """Eight requests at a time keep the disk's queue full. Threads, not children: they end with
    their process, whoever ends it."""
    path = f"{folder}/flood-{os.getpid()}"
    os.close(_fill(path))
    for turn in range(1, 8):
        threading.Thread(target=_requests, args=(path, size, writes, turn), daemon=True).start()
    _requests(path, size, writes, 0)


def _requests(path: str, size: int, writes: bool, turn: int) -> None:
    descriptor = _direct(path, os.O_RDWR)
    block = mmap.mmap(-1, size)
    offset = turn * (_FILE_BYTES // 8)
    while True:
        if writes:
            os.pwrite(descriptor, block, offset)
        else:
            os.preadv(descriptor, [block], offset)
        offset = (offset + size) % _FILE_BYTES


def _memory_service(_: str) -> None:
    """4 MiB taken and given back each 20 ms."""
    while True:
        with mmap.mmap(-1, 4 << 20) as memory:
            for page in range(0, len(memory), 4096):
                memory[page] = 1
        time.sleep(0.02)


def _map_dirty(folder: str) -> None:
    """Changes each page of a mapped file that is larger than everybody's memory."""
    size = 512 << 20
    with open(f"{folder}/mapped-{os.getpid()}", "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory:
            while True:
                for page in range(0, size, 4096):
                    memory[page] = (memory[page] + 1) & 255


def _cache_grow(folder: str) -> None:
    """Writes files through the page cache."""
    block = os.urandom(_BLOCK)
    path = f"{folder}/cache-{os.getpid()}"
    while True:
        with open(path, "wb") as file:
            for _ in range(512):
                file.write(block)


def _hold(_: str) -> None:
    """Memory that is only there."""
    memory = mmap.mmap(-1, 32 << 20)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    while True:
        time.sleep(1)


LOADS: Mapping[str, Callable[[str], None]] = {
    "spin": _spin,
    "forks": _forks,
    "copy": _copy,
    "hog": _hog,
    "service": _service,
    "io-service": _io_service,
    "io-write": lambda folder: _io_flood(folder, 256 << 10, True),
    "io-read": lambda folder: _io_flood(folder, 128 << 10, False),
    "memory-service": _memory_service,
    "map-dirty": _map_dirty,
    "cache-grow": _cache_grow,
    "hold": _hold,
}


if __name__ == "__main__":
    print(flush=True)
    sys.stdin.readline()
    LOADS[sys.argv[1]](sys.argv[2])
