"""Programs at the ends of a link, for the network bench; run as ``python -m
bench.effects.network_load ROLE HOST PORT [COUNT]``.

``sink``: takes what arrives. ``echo``: sends it back. ``bulk``: sends as much as it can, on COUNT
connections, which are reset when it is killed. ``ask``: sends 200 bytes each 20 ms, whatever
becomes of those before (open loop), and takes the time until they are back, from when they should
have been sent.

Each begins with a byte on standard input and prints a line when it is there. Then at each line
that it reads: bytes that arrived since the last one (``sink``), latencies in ms (``ask``), as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

ASK_EVERY_S = 0.02
ASK_BYTES = 200
_BULK = bytes(1 << 16)
# The default of most distributions; others (bbr) hide a queue by pacing.
_CONGESTION = b"cubic"
_RESET = struct.pack("ii", 1, 0)


def main(role: str, host: str, port: int, count: int = 1) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    os.read(0, 1)
    take = _bulk(host, port, count) if role == "bulk" else _ROLES[role](host, port)
    print(flush=True)
    for _ in sys.stdin:
        print(json.dumps(take()), flush=True)


def _sink(host: str, port: int) -> Callable[[], int]:
    arrived = [0]

    def serve(connection: socket.socket) -> None:
        buffer = bytearray(1 << 16)
        while count := connection.recv_into(buffer):
            arrived[0] += count

    def take() -> int:
        count, arrived[0] = arrived[0], 0
        return count

    _listen(host, port, serve)
    return take


def _echo(host: str, port: int) -> Callable[[], None]:
    def serve(connection: socket.socket) -> None:
        while data := connection.recv(1 << 16):
            connection.sendall(data)

    _listen(host, port, serve)
    return lambda: None


def _listen(host: str, port: int, serve: Callable[[socket.socket], None]) -> None:
    server = socket.create_server((host, port))

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(connection)

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _bulk(host: str, port: int, count: int) -> Callable[[], None]:
    def send(connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                connection.sendall(_BULK)

    for _ in range(count):
        connection = _connect(host, port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        threading.Thread(target=send, args=(connection,), daemon=True).start()
    return lambda: None


def _ask(host: str, port: int) -> Callable[[], list[float]]:
    connection = _connect(host, port)
    under_way: deque[float | None] = deque()
    waits_ms: list[float] = []
    lock = threading.Lock()

    def send() -> None:
        at = time.monotonic()
        while True:
            time.sleep(max(0.0, at - time.monotonic()))
            with lock:
                under_way.append(at)
            connection.sendall(bytes(ASK_BYTES))
            at += ASK_EVERY_S

    def receive() -> None:
        arrived = 0
        while data := connection.recv(1 << 16):
            arrived += len(data)
            now = time.monotonic()
            with lock:
                for _ in range(arrived // ASK_BYTES):
                    at = under_way.popleft()
                    if at is not None:
                        waits_ms.append(1000 * (now - at))
            arrived %= ASK_BYTES

    def take() -> list[float]:
        """Those that are still on their way count with what they have waited, once: a link that
        stands still must not look fast."""
        with lock:
            now = time.monotonic()
            found = waits_ms + [1000 * (now - at) for at in under_way if at is not None]
            for index in range(len(under_way)):
                under_way[index] = None
            waits_ms.clear()
        return found

    for work in (send, receive):
        threading.Thread(target=work, daemon=True).start()
    return take


def _connect(host: str, port: int) -> socket.socket:
    found = socket.socket()
    with contextlib.suppress(OSError):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _CONGESTION)
    found.connect((host, port))
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


_ROLES: dict[str, Callable[[str, int], Callable[[], object]]] = {
    "sink": _sink,
    "echo": _echo,
    "ask": _ask,
}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
