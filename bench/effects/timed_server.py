"""A prefork server whose work is counted in CPU time, for machines on which no work is of a known
length: the CPUs of an emulated guest take turns, so the same instructions last longer while
others work, though nothing waits.

``python -m bench.effects.timed_server SOCKET WORKERS WORK_MS``; otherwise as the demo's.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import time
from typing import NoReturn

from koordlet.demo.ls_server import BACKLOG
from koordlet.demo.process import die_with_parent

_BLOCK = bytes(range(256)) * 4


def _work(listener: socket.socket, work_ns: int) -> NoReturn:
    while True:
        began = time.thread_time_ns()
        connection, _ = listener.accept()
        with connection:
            if not connection.recv(8):
                continue
            digest = hashlib.sha256()
            while time.thread_time_ns() - began < work_ns:
                digest.update(_BLOCK)
            connection.sendall(digest.digest()[:8])


def main(argv: list[str]) -> None:
    path, workers, work_ns = argv[0], int(argv[1]), round(float(argv[2]) * 1e6)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(BACKLOG)
    parent = os.getpid()
    for _ in range(workers):
        if os.fork() == 0:
            die_with_parent(parent)
            _work(listener, work_ns)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
