"""The open-loop load of the demo.

``python -m koordlet.demo.load SOCKET RATE SLICE_S ARMS ROUNDS SEED START OUT``. Arrivals are a
Poisson process of RATE per second, drawn from SEED, the same in each of the ARMS slices of a round,
so that every arm sees the same arrivals. A request is sent at its intended time whether or not
earlier ones were answered, and its latency counts from that intended time: a late sender or a full
queue cannot hide (coordinated omission). START is CLOCK_MONOTONIC seconds, some time ahead.

Real clients sit on other machines, so this one runs before all normal tasks: the best-effort load
must reach the service, not the stop-watch.

OUT gets native doubles: pairs of intended time since START (s) and latency (s).
"""

from __future__ import annotations

import array
import select
import socket
import sys
import threading
import time

from koordlet.demo.process import set_timer_slack
from koordlet.demo.slices import arrivals_in_rounds

# The default slack of 50 us would be part of every latency.
TIMER_SLACK_NS = 1000
# How long after the last arrival answers are waited for; what is missing then counts as this.
DRAIN_S = 5.0


class Client:
    """One thread sends on time, one receives; `latency` (s) is filled by the receiver."""

    def __init__(self, path: str, times: list[float], start: float) -> None:
        self.latency = array.array("d", [-1.0]) * len(times)
        self._path = path
        self._times = times
        self._start = start
        self._open: dict[int, tuple[socket.socket, int]] = {}
        self._poll = select.epoll()
        self._missing = len(times)

    def run(self) -> None:
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        set_timer_slack(TIMER_SLACK_NS)
        for index, when in enumerate(self._times):
            delay = self._start + when - time.monotonic()
            if delay > 0:
                time.sleep(delay)
            self._send(index)
        receiver.join(DRAIN_S)
        for index, value in enumerate(self.latency):
            if value < 0:
                self.latency[index] = DRAIN_S

    def _send(self, index: int) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        connection.send(b"request\n")
        self._open[connection.fileno()] = (connection, index)
        self._poll.register(connection, select.EPOLLIN | select.EPOLLONESHOT)

    def _receive(self) -> None:
        while self._missing:
            for descriptor, _ in self._poll.poll():
                now = time.monotonic()
                connection, index = self._open.pop(descriptor)
                self.latency[index] = now - self._start - self._times[index]
                connection.close()
                self._missing -= 1


def main(argv: list[str]) -> None:
    path, rate, slice_s = argv[0], float(argv[1]), float(argv[2])
    arms, rounds, seed = map(int, argv[3:6])
    start, out = float(argv[6]), argv[7]
    times = arrivals_in_rounds(rate, slice_s, arms, rounds, seed)
    client = Client(path, times, start)
    if time.monotonic() > start:
        sys.exit("the load was not ready when the arm should have started")
    time.sleep(start - time.monotonic())
    client.run()
    values = array.array("d")
    for when, latency in zip(times, client.latency, strict=True):
        values.append(when)
        values.append(latency)
    with open(out, "wb") as file:
        values.tofile(file)


if __name__ == "__main__":
    main(sys.argv[1:])
