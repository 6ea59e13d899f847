"""Programs that use a disk, for the block I/O bench; run as ``python -m bench.effects.blkio_load
ROLE FILE SECONDS``. All I/O is direct: what is in the page cache says nothing of the disk.

``commit``: like the log of a database, 4 KiB at a time, each on the disk before it counts; 50 a
second whatever becomes of those before (open loop). In the end it writes to FILE.json how long
each took, in ms from when it should have begun.
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
FLOODERS = 8
FLOOD_BYTES = 1 << 20
LOG_BYTES, FLOOD_FILE_BYTES = 4 << 20, 64 << 20


def main(role: str, path: str, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    if role == "commit":
        _commit(path, seconds)
    else:
        _flood(path)


def fill(path: str, length: int) -> None:
    """Blocks that exist: those of a hole cost the file system more. Raises OSError."""
    with open(path, "wb") as file:
        file.write(bytes(length))
        os.fsync(file.fileno())


def _commit(path: str, seconds: float) -> None:
    buffer = mmap.mmap(-1, COMMIT_BYTES)  # direct I/O wants whole pages
    waits_ms = []
    descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
    began = time.monotonic()
    for number in range(int(COMMITS_PER_S * seconds)):
        due = began + number / COMMITS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))
        os.pwrite(descriptor, buffer, number * COMMIT_BYTES % LOG_BYTES)
        waits_ms.append(1000 * (time.monotonic() - due))
        if time.monotonic() > began + 3 * seconds:  # the rest would only wait longer
            break
    with open(f"{path}.json", "w") as file:
        json.dump(waits_ms, file)


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
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
