from __future__ import annotations

import socket
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path

from koordlet.demo.load import Client
from koordlet.demo.slices import arrivals


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert arrivals(200, 5, 1) == arrivals(200, 5, 1)
    assert arrivals(200, 5, 1) != arrivals(200, 5, 2)


def test_arrivals_are_a_poisson_process() -> None:
    """Gaps of an exponential distribution: as wide as they are long on average."""
    times = arrivals(500, 60, 7)
    gaps = [after - before for before, after in pairwise(times)]
    assert all(0 < t < 60 for t in times)
    assert min(gaps) > 0
    assert abs(len(times) / (500 * 60) - 1) < 0.05
    assert abs(statistics.pstdev(gaps) / statistics.mean(gaps) - 1) < 0.05


def test_latency_counts_from_the_intended_time(tmp_path: Path) -> None:
    """A service that stalls on its first request makes all that should have come meanwhile wait,
    and the load does not send less for that."""
    address = str(tmp_path / "s")
    stall_s = 0.3
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)

        def serve() -> None:
            for index in range(5):
                connection, _ = listener.accept()
                connection.recv(8)
                if index == 0:
                    time.sleep(stall_s)
                connection.send(b"x")
                connection.close()

        server = threading.Thread(target=serve)
        server.start()
        times = [0.0, 0.05, 0.10, 0.15, 0.20]
        client = Client(address, times, time.monotonic())
        client.run()
        server.join()
    for when, latency in zip(times, client.latency, strict=True):
        assert latency >= stall_s - when
