"""The latency-sensitive service of the demo: a prefork server on a unix socket.

``python -m koordlet.demo.ls_server SOCKET WORKERS ROUNDS``. No worker is pinned to a CPU, as those
of most services are not; all accept on the shared socket, so a request waits only while every
worker is busy. One request per connection: 8 bytes in, some JSON rendering and hashing, 8 bytes
out.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from koordlet.demo.process import die_with_parent

# Enough for the queue that an unmanaged arm builds up; beyond it the client waits in connect.
BACKLOG = 1024
_BLOCK = bytes(range(256)) * 16
_RECORD = {
    "order": 4711,
    "items": [
        {"sku": f"sku-{i}", "count": i, "price": i * 1.25, "tags": ["a", "b"]} for i in range(24)
    ],
}


def handle(rounds: int) -> bytes:
    """The work of one request: render a document, then hash `rounds` blocks of 4 KiB."""
    digest = hashlib.sha256(json.dumps(_RECORD).encode())
    for _ in range(rounds):
        digest.update(_BLOCK)
    return digest.digest()[:8]


def calibrate(service_ms: float) -> int:
    """Rounds that make one request last about `service_ms` on this machine when alone."""
    rounds = 100
    handle(rounds)
    samples = []
    for _ in range(15):
        started = time.perf_counter()
        handle(rounds)
        samples.append(time.perf_counter() - started)
    per_round_ms = sorted(samples)[len(samples) // 2] * 1000 / rounds
    return max(1, round(service_ms / per_round_ms))


def _work(listener: socket.socket, rounds: int) -> NoReturn:
    while True:
        connection, _ = listener.accept()
        with connection:
            if connection.recv(8):
                try:
                    connection.sendall(handle(rounds))
                except BrokenPipeError:
                    continue


def main(argv: list[str]) -> None:
    rounds = int(argv[2])
    serve(argv[0], int(argv[1]), lambda listener: _work(listener, rounds))


def serve(path: str, workers: int, work: Callable[[socket.socket], NoReturn]) -> None:
    """Listen on a unix socket, and let so many children work until this process ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(BACKLOG)
    parent = os.getpid()
    for _ in range(workers):
        if os.fork() == 0:
            die_with_parent(parent)
            work(listener)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
