"""Programs that use a disk, for the block I/O bench; run as ``python -m bench.effects.blkio_load
ROLE FILE``. All I/O is direct: what is in the page cache says nothing of the disk.

``commit``: like the log of a database, 4 KiB at a time, each on the disk before it counts; 50 a
second whatever becomes of those before (open loop), but that one which is a second late is left
out. At SIGTERM it writes to FILE.json, for each, the CLOCK_MONOTONIC second at which it should
have begun, and how long it took from there, in ms.
``flood``: eight threads write FILE and eight read it, 1 MiB at a time, as fast as they can.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import threading
import time

COMMITS_PER_S = 50
COMMIT_BYTES = 4 << 10
_GIVE_UP_S = 1.0
FLOODERS = 8
FLOOD_BYTES = 1 << 20
LOG_BYTES, FLOOD_FILE_BYTES = 4 << 20, 64 << 20


def main(role: str, path: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    if role == "commit":
        _commit(path)
    else:
        _flood(path)


def fill(path: str, length: int) -> None:
    """Blocks that exist: those of a hole cost the file system more. Raises OSError."""
    with open(path, "wb") as file:
        file.write(bytes(length))
        os.fsync(file.fileno())


def _commit(path: str) -> None:
    ended: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(time.monotonic()))
    buffer = mmap.mmap(-1, COMMIT_BYTES)  # direct I/O wants whole pages
    waits_ms = []
    descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
    due = time.monotonic()
    number = 0
    while not ended or due < ended[0]:
        time.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() < due + _GIVE_UP_S:
            os.pwrite(descriptor, buffer, number * COMMIT_BYTES % LOG_BYTES)
        waits_ms.append((due, 1000 * (time.monotonic() - due)))
        due += 1 / COMMITS_PER_S
        number += 1
    with open(f"{path}.new", "w") as file:
        json.dump(waits_ms, file)
    os.rename(f"{path}.new", f"{path}.json")


def _flood(path: str) -> None:
    def write(first: int) -> None:
        buffer = mmap.mmap(-1, FLOOD_BYTES)
        descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
        at = first
        while True:
            os.pwrite(descriptor, buffer, at)
            at = (at + FLOODERS * FLOOD_BYTES) % FLOOD_FILE_BYTES

    def read(first: int) -> None:
        buffer = mmap.mmap(-1, FLOOD_BYTES)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        at = first
        while True:
            os.preadv(descriptor, [buffer], at)
            at = (at + FLOODERS * FLOOD_BYTES) % FLOOD_FILE_BYTES

    for work in (write, read):
        for number in range(FLOODERS):
            threading.Thread(target=work, args=(number * FLOOD_BYTES,), daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
