"""``python workload.py HOT COLD FILE HOT_FILE COLD_FILE PROCS...``: memory of known temperature.

Enters the cgroups whose ``cgroup.procs`` are given, fills HOT and COLD MiB of anonymous memory and
a file of HOT_FILE + COLD_FILE MiB, says ``ready``, and from then on touches HOT and reads HOT_FILE
three times a second. The rest it never touches again.

Everything runs on one CPU: an emulated one keeps translations until another process comes, and
does not set accessed bits meanwhile.
"""

from __future__ import annotations

import mmap
import os
import sys
import time

MIB = 1 << 20
PAGE_BYTES = mmap.PAGESIZE
PAUSE_S = 0.3


def filled(size: int) -> mmap.mmap | None:
    """Small pages alone, so that each has an accessed bit of its own."""
    if not size:
        return None
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    touch(memory)
    return memory


def touch(memory: mmap.mmap) -> None:
    memory[::PAGE_BYTES] = b"x" * (len(memory) // PAGE_BYTES)


def main(hot: int, cold: int, path: str, hot_file: int, cold_file: int) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warm, kept = filled(hot), filled(cold)
    buffer = bytearray(MIB)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range((hot_file + cold_file) // MIB):
        os.write(descriptor, buffer)
    os.fsync(descriptor)
    print("ready", flush=True)
    while True:
        if warm is not None:
            touch(warm)
        for offset in range(0, hot_file, MIB):
            os.preadv(descriptor, [buffer], offset)
        time.sleep(PAUSE_S)
    del kept


if __name__ == "__main__":
    for procs in sys.argv[6:]:
        with open(procs, "w") as file:
            file.write(str(os.getpid()))
    sizes = [int(each) * MIB for each in (sys.argv[1], sys.argv[2], sys.argv[4], sys.argv[5])]
    main(sizes[0], sizes[1], sys.argv[3], sizes[2], sizes[3])
