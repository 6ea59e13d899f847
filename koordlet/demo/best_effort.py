"""The best-effort load of the demo: CPU burners and one thrasher of memory and cache.

``python -m koordlet.demo.best_effort COUNTERS BURNERS THRASH_MIB``. COUNTERS is a file of
BURNERS + 1 native 64-bit counters that the workers add to: hashed blocks, and moved MiB (last).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
import sys
from typing import NoReturn

from koordlet.demo.process import die_with_parent

_CHUNK = b"\x5a" * 65536
COUNTER_BYTES = 8


def _burn(counters: memoryview, slot: int) -> NoReturn:
    done = 0
    while True:
        hashlib.sha256(_CHUNK).digest()
        done += 1
        counters[slot] = done


def _thrash(counters: memoryview, slot: int, mebibytes: int) -> NoReturn:
    source = bytearray(mebibytes << 20)
    target = memoryview(bytearray(mebibytes << 20))
    view = memoryview(source)
    done = 0
    while True:
        for start in range(0, len(source), 1 << 20):
            target[start : start + (1 << 20)] = view[start : start + (1 << 20)]
            done += 1
            counters[slot] = done


def main(argv: list[str]) -> None:
    path, burners, mebibytes = argv[0], int(argv[1]), int(argv[2])
    with open(path, "r+b") as file:
        counters = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    parent = os.getpid()
    for slot in range(burners):
        if os.fork() == 0:
            die_with_parent(parent)
            _burn(counters, slot)
    if os.fork() == 0:
        die_with_parent(parent)
        _thrash(counters, burners, mebibytes)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
