"""Programs that use memory, for benches; run as ``python -m bench.effects.memory_load ROLE ...``.
Each prints a line once it has what it holds.

``hold MIB``: has it, and no more.
``leak MIB MIB_PER_S MOST_MIB [deaf]``: takes more each 10 ms, until it has MOST_MIB. ``deaf``: does
not end at SIGTERM.
``serve FILE MIB RATE SECONDS``: a service with MIB of memory of its own and a FILE that it looks
things up in, once it gets SIGUSR1. Each request reads four places of the file and four of the
memory, RATE times a second whatever becomes of those before (open loop). In the end it writes to
FILE.json how long each took, in ms from when it should have begun, and stays.
``stream FILE MIB``: holds MIB, and reads and rewrites FILE for ever, through the page cache.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LEAK_EVERY_S = 0.01
_TOUCHES = 4
_CHUNK_BYTES = 256 << 10


def main(role: str, *arguments: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _ROLES[role](*arguments)


def _memory(mib: int) -> bytearray:
    """Its pages differ, so that nothing can merge or compress them away."""
    found = bytearray(mib * MIB)
    for at in range(0, len(found), PAGE_BYTES):
        found[at : at + 8] = at.to_bytes(8, "little")
    return found


def _hold(mib: str) -> NoReturn:
    held = _memory(int(mib))
    print(flush=True)
    while True:
        signal.pause()
        held[0] = 1


def _leak(mib: str, mib_per_s: str, most_mib: str, manner: str = "") -> NoReturn:
    if manner == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = [_memory(int(mib))]
    print(flush=True)
    began, taken_mib = time.monotonic(), 0
    while True:
        due_mib = min((time.monotonic() - began) * int(mib_per_s), int(most_mib))
        if due_mib - taken_mib >= 1:
            held.append(bytearray(b"x") * (int(due_mib - taken_mib) * MIB))
            taken_mib = int(due_mib)
        time.sleep(_LEAK_EVERY_S)


def _serve(path: str, mib: str, rate: str, seconds: str) -> None:
    held = _memory(int(mib))
    descriptor = os.open(path, os.O_RDONLY)
    pages = os.fstat(descriptor).st_size // PAGE_BYTES
    # No read-ahead: a lookup knows nothing of the next one.
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for page in range(pages):
        os.pread(descriptor, PAGE_BYTES, page * PAGE_BYTES)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print(flush=True)
    signal.sigwait({signal.SIGUSR1})
    draw = random.Random(1)
    waits_ms = []
    began = time.monotonic()
    for number in range(int(int(rate) * float(seconds))):
        due = began + number / int(rate)
        time.sleep(max(0.0, due - time.monotonic()))
        for _ in range(_TOUCHES):
            os.pread(descriptor, PAGE_BYTES, draw.randrange(pages) * PAGE_BYTES)
            held[draw.randrange(len(held))] += 0
        waits_ms.append(1000 * (time.monotonic() - due))
    with open(f"{path}.new", "w") as file:
        json.dump(waits_ms, file)
    os.rename(f"{path}.new", f"{path}.json")
    signal.pause()


def _stream(path: str, mib: str) -> NoReturn:
    held = _memory(int(mib))
    descriptor = os.open(path, os.O_RDWR)
    length = os.fstat(descriptor).st_size
    print(flush=True)
    chunk = bytes(_CHUNK_BYTES)
    while True:
        for at in range(0, length, _CHUNK_BYTES):
            os.pread(descriptor, _CHUNK_BYTES, at)
            if at % (8 * _CHUNK_BYTES) == 0:
                os.pwrite(descriptor, chunk, at)
        held[0] = 1


_ROLES: dict[str, Callable[..., None]] = {
    "hold": _hold,
    "leak": _leak,
    "serve": _serve,
    "stream": _stream,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
