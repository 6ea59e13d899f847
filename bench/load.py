"""Processes that use CPU on command, for benches; run as ``python -m bench.load KIND ...``.

``burn N``: N processes that never rest. ``bursts N``: N processes that use ``BURST_S`` of CPU, rest
for ``PAUSE_S``, and so on. ``step N``: N processes that rest until a byte comes on standard input
and work until the next one, then rest again. ``spin N``: as ``burn``, at once, where whoever starts
it has put it.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from koordlet.demo.process import die_with_parent

BURST_S = 0.012
PAUSE_S = 0.2


def start(kind: str, count: int, join: Callable[[int], None]) -> subprocess.Popen[bytes]:
    """``join`` moves the process into its cgroup before it forks. It dies with its parent."""
    parent = os.getpid()
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.load", kind, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: die_with_parent(parent),
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()  # it waits for us now
    join(child.pid)
    child.stdin.write(b"g")
    child.stdin.flush()
    child.stdout.readline()  # it has forked
    return child


def tell(child: subprocess.Popen[bytes], *, work: bool) -> None:
    assert child.stdin is not None
    child.stdin.write(b"1" if work else b"0")
    child.stdin.flush()


def _burn() -> NoReturn:
    while True:
        sum(range(2000))


def _bursts() -> NoReturn:
    while True:
        end = time.process_time() + BURST_S
        while time.process_time() < end:
            sum(range(200))
        time.sleep(PAUSE_S)


def _step(flag: mmap.mmap, wakes: int) -> NoReturn:
    while True:
        os.read(wakes, 1)
        while flag[0]:
            sum(range(2000))


def main(kind: str, count: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    if kind != "spin":
        print("ready", flush=True)
        os.read(0, 1)
    flag = mmap.mmap(-1, 1)
    pipes = [os.pipe() for _ in range(count)]
    parent = os.getpid()
    for reader, _ in pipes:
        if os.fork() == 0:
            die_with_parent(parent)
            if kind in ("burn", "spin"):
                _burn()
            if kind == "bursts":
                _bursts()
            _step(flag, reader)
    print("forked", flush=True)
    if kind == "spin":
        signal.pause()
    while command := os.read(0, 1):
        flag[0] = command == b"1"
        if flag[0]:
            for _, writer in pipes:
                os.write(writer, b"w")
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
