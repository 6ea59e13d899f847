"""A prefork server whose work is counted in CPU time, for machines on which no work is of a known
length: the CPUs of an emulated guest take turns, so the same instructions last longer while
others work, though nothing waits.

``python -m bench.effects.timed_server SOCKET WORKERS WORK_MS``; otherwise as the demo's.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import time
from typing import NoReturn

from koordlet.demo.ls_server import serve

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
    work_ns = round(float(argv[2]) * 1e6)
    serve(argv[0], int(argv[1]), lambda listener: _work(listener, work_ns))


if __name__ == "__main__":
    main(sys.argv[1:])
