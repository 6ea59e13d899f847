"""A request of the server for guests costs the CPU time that it was told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.effects.guest_means import recorded_as

ROOT = Path(__file__).parents[2]


def _ask(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"request\n")
        return connection.recv(64)


def test_a_request_costs_its_cpu_time(tmp_path: Path) -> None:
    path, asked = tmp_path / "s", 10
    command = (sys.executable, "-m", "bench.effects.timed_server", str(path), "1", "20")
    with subprocess.Popen(command, cwd=ROOT) as server:
        try:
            ends = time.monotonic() + 30
            while not path.exists() and time.monotonic() < ends:
                time.sleep(0.01)
            time.sleep(0.1)  # from bind to listen
            (worker,) = _children(server.pid)
            before = _ran_s(worker)
            assert [len(_ask(path)) for _ in range(asked)] == [8] * asked
            assert 0.02 * (asked - 1) <= _ran_s(worker) - before <= 0.02 * asked + 0.1
        finally:
            server.terminate()


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ran_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_a_record_is_named_after_kernel_and_cpus() -> None:
    assert recorded_as("means", "6.12", 2) == "means-6.12"
    assert recorded_as("means-short", "7.2", 4) == "means-short-7.2-4-cpus"
