"""An open-loop client of a service, in a process of its own.

A request is sent at its intended time whether or not earlier ones were answered, and its latency
counts from that intended time to the last byte of the reply: a late sender or a full queue cannot
hide (coordinated omission). Arrivals are a Poisson process drawn from a seed, so that every arm
sees the same ones. Real clients sit on other machines, so this one runs before all normal tasks.

``python -m bench.effects.client LOAD OUT``: LOAD is a ``Load`` as JSON. It says ``ready`` on
standard output, reads the CLOCK_MONOTONIC second to begin at from standard input, and writes
native doubles to OUT: its own CPU seconds, then pairs of intended time (s since the beginning) and
latency (s, or why there is none: see ``_LATE_S``).
"""

from __future__ import annotations

import array
import bisect
import collections
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.figures import NotMeasuredError
from koordlet.demo.load import DRAIN_S, TIMER_SLACK_NS
from koordlet.demo.process import die_with_parent, run_first, set_timer_slack
from koordlet.demo.slices import arrivals, arrivals_in_rounds

_LATE_S, _BAD_S = -1.0, -2.0  # in place of a latency
_READ_BYTES = 1 << 18
_LOOK_S = 0.5
_IDLE = -1


class Load(msgspec.Struct, frozen=True):
    """``address``: ``host:port`` or the path of a unix socket. ``request``: sent as it is, or with
    ``%d`` (``%07d``) for a random number below ``keys``. ``reply_bytes``: of a whole reply on a
    connection that is kept; 0 = a new connection for each request, and the service closes it. A
    good reply begins with ``reply_begins``. ``burst``: so many requests arrive at once.

    ``connections``: so many are kept, made before the first request, and a request waits until one
    is free; 0 = as many as it takes. ``greeting`` is sent first on each connection, and what comes
    back ends with ``greeted``.

    ``slice_s``: the same arrivals come in each slice of a round of ``arms``; 0: there are none."""

    address: str
    request: bytes
    reply_begins: bytes
    rate_per_s: float
    seconds: float
    reply_bytes: int = 0
    keys: int = 0
    burst: int = 1
    seed: int = 1
    slice_s: float = 0.0
    arms: int = 1
    connections: int = 0
    greeting: bytes = b""
    greeted: bytes = b""

    def drawn(self, draw: random.Random) -> bytes:
        """The request to send."""
        return self.request % draw.randrange(self.keys) if self.keys else self.request

    def connect(self) -> socket.socket:
        """Raises OSError."""
        return connect(self.address, self.greeting, self.greeted)


@dataclass(frozen=True)
class Latencies:
    """``at_s``: intended times since the beginning, ascending; ``ms``: the latency of each. One
    that was not answered in time counts as ``DRAIN_S``, one that was refused or answered badly
    does too and is in ``failed``. ``client_cores``: what the client itself used."""

    at_s: Sequence[float]
    ms: Sequence[float]
    failed: int
    client_cores: float

    def since(self, at_s: float) -> Latencies:
        """Of the requests from this moment on."""
        return self.between(at_s, float("inf"))

    def between(self, begins_s: float, ends_s: float) -> Latencies:
        """Return the part of it whose requests were to be sent then."""
        first, last = (bisect.bisect_left(self.at_s, each) for each in (begins_s, ends_s))
        return replace(self, at_s=self.at_s[first:last], ms=self.ms[first:last])


class Client:
    """A running one. It dies with its parent."""

    def __init__(self, load: Load, directory: Path, name: str, prefix: Sequence[str] = ()) -> None:
        """Returns when it is ready. ``prefix``: a command to run it under, as ``nsenter``."""
        self._load = load
        self._out = directory / f"{name}.latencies"
        parent = os.getpid()

        self._process = subprocess.Popen(
            [
                *(*prefix, sys.executable, "-m", "bench.effects.client"),
                *(msgspec.json.encode(load).decode(), str(self._out)),
            ],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(parent),
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.kill()
            raise RuntimeError(f"the client of {load.address} did not start")

    def begin(self, at: float) -> None:
        """``at``: CLOCK_MONOTONIC seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{at}\n".encode())
        self._process.stdin.close()

    def running(self) -> bool:
        return self._process.poll() is None

    def result(self) -> Latencies:
        """Waits for its end. Raises RuntimeError when it failed."""
        code = self._process.wait()
        if code:
            raise RuntimeError(f"the client of {self._load.address} ended with {code}")
        values = array.array("d")
        values.frombytes(self._out.read_bytes())
        seconds = values[2::2]
        return Latencies(
            at_s=values[1::2],
            ms=[(DRAIN_S if each < 0 else each) * 1000 for each in seconds],
            failed=seconds.count(_BAD_S),
            client_cores=values[0] / self._load.seconds,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _Exchange:
    """One connection and the request on it."""

    __slots__ = ("connection", "good", "index", "received")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.begin(0)

    def begin(self, index: int) -> None:
        self.index, self.received, self.good = index, 0, False

    def take(self, load: Load, data: bytes) -> bool:
        """Return whether the reply ends with this; nothing: the service has closed it."""
        if self.received == 0:
            self.good = data.startswith(load.reply_begins)
        self.received += len(data)
        if data and self.received != load.reply_bytes:
            return False
        self.good = self.good and self.received >= load.reply_bytes
        return True


class _Driver:
    """One thread sends on time, one receives; ``latency`` (s) is filled by the receiver."""

    def __init__(self, load: Load) -> None:
        draw = random.Random(load.seed)
        rate = load.rate_per_s / load.burst
        if load.slice_s:
            rounds = round(load.seconds / load.slice_s / load.arms)
            moments = arrivals_in_rounds(rate, load.slice_s, load.arms, rounds, load.seed)
        else:
            moments = arrivals(rate, load.seconds, load.seed)
        self.times = [when for when in moments for _ in range(load.burst)]
        self.latency = array.array("d", [_LATE_S]) * len(self.times)
        self._requests = [load.drawn(draw) for _ in self.times]
        self._load = load
        self._open: dict[int, _Exchange] = {}
        self._idle: collections.deque[_Exchange] = collections.deque()
        # Requests for which no connection was free. Both threads hand connections on.
        self._waiting: collections.deque[int] = collections.deque()
        self._handing_on = threading.Lock()
        self._poll = select.epoll()
        # Each has one writer: the receiver, the sender.
        self._answered = 0
        self._unsent = 0
        self._start = 0.0
        for _ in range(load.connections):
            self._idle.append(self._connect())

    def run(self, start: float) -> None:
        self._start = start
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        set_timer_slack(TIMER_SLACK_NS)
        for index, when in enumerate(self.times):
            delay = start + when - time.monotonic()
            if delay > 0:
                time.sleep(delay)
            self._send(index)
        receiver.join(DRAIN_S)

    def _send(self, index: int) -> None:
        with self._handing_on:
            exchange = self._idle.pop() if self._idle else None
            if exchange is None and self._load.connections:
                self._waiting.append(index)
                return
        try:
            self._send_on(exchange or self._connect(), index)
        except OSError:  # refused, or closed by the service just now
            self.latency[index] = _BAD_S
            self._unsent += 1

    def _send_on(self, exchange: _Exchange, index: int) -> None:
        exchange.begin(index)
        exchange.connection.sendall(self._requests[index])

    def _connect(self) -> _Exchange:
        exchange = _Exchange(self._load.connect())
        descriptor = exchange.connection.fileno()
        self._open[descriptor] = exchange
        self._poll.register(descriptor, select.EPOLLIN)
        return exchange

    def _receive(self) -> None:
        while self._answered + self._unsent < len(self.times):
            for descriptor, _ in self._poll.poll(_LOOK_S):
                self._take(self._open[descriptor])

    def _take(self, exchange: _Exchange) -> None:
        try:
            data = exchange.connection.recv(_READ_BYTES)
        except OSError:
            data = b""
        now = time.monotonic()
        if not exchange.take(self._load, data):
            return
        if exchange.index != _IDLE:
            when = self._start + self.times[exchange.index]
            self.latency[exchange.index] = now - when if exchange.good else _BAD_S
            self._answered += 1
        if data:
            self._hand_on(exchange)
        else:
            self._drop(exchange)

    def _hand_on(self, exchange: _Exchange) -> None:
        """Give the connection to the request that waits longest, if one does."""
        exchange.index = _IDLE
        with self._handing_on:
            if not self._waiting:
                self._idle.append(exchange)
                return
            index = self._waiting.popleft()
        try:
            self._send_on(exchange, index)
        except OSError:  # the receiver will see that it is closed
            return

    def _drop(self, exchange: _Exchange) -> None:
        with self._handing_on:
            if exchange in self._idle:
                self._idle.remove(exchange)
        del self._open[exchange.connection.fileno()]
        exchange.connection.close()


def capacity(load: Load, clients: int = 8) -> float:
    """Requests a second that so many clients get answered, each of which sends its next one when it
    has its reply (closed loop), for the seconds of the load, whatever its rate: what a service can
    do alone. One thread is all clients, so the least of what both can do is measured. Raises
    OSError, and NotMeasuredError for a bad reply."""
    draw, answered = random.Random(load.seed), 0
    exchanges: dict[int, _Exchange] = {}
    poll = select.epoll()

    def ask(exchange: _Exchange | None = None) -> None:
        if exchange is None:
            exchange = _Exchange(load.connect())
            exchanges[exchange.connection.fileno()] = exchange
            poll.register(exchange.connection, select.EPOLLIN)
        exchange.begin(0)
        exchange.connection.sendall(load.drawn(draw))

    try:
        for _ in range(clients):
            ask()
        ends = time.monotonic() + load.seconds
        while time.monotonic() < ends:
            for descriptor, _ in poll.poll(_LOOK_S):
                exchange = exchanges[descriptor]
                data = exchange.connection.recv(_READ_BYTES)
                if not exchange.take(load, data):
                    continue
                if not exchange.good:
                    raise NotMeasuredError(f"{load.address} answers badly")
                answered += 1
                if not data:
                    exchanges.pop(descriptor).connection.close()
                ask(exchange if data else None)
    finally:
        poll.close()
        for exchange in exchanges.values():
            exchange.connection.close()
    return answered / load.seconds


def connect(address: str, greeting: bytes = b"", greeted: bytes = b"") -> socket.socket:
    """Connect to ``host:port`` or the path of a unix socket; the rest as in ``Load``. Raises
    OSError."""
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if greeting:
        connection.sendall(greeting)
        answer = b""
        while not answer.endswith(greeted):
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionError(f"{address} answers a greeting with {answer!r}")
            answer += data
    return connection


def main(argv: list[str]) -> None:
    driver = _Driver(msgspec.json.decode(argv[0], type=Load))
    run_first()  # and no sooner: on an emulated CPU imports take longer than it may run at a time
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    time.sleep(max(0.0, start - time.monotonic()))
    used = time.process_time()
    driver.run(start)
    values = array.array("d", [time.process_time() - used])
    for when, latency in zip(driver.times, driver.latency, strict=True):
        values.append(when)
        values.append(latency)
    with open(argv[1], "wb") as file:
        values.tofile(file)


if __name__ == "__main__":
    main(sys.argv[1:])
