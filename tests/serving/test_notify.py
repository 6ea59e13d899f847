"""The service manager's protocol, with sockets of our own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from koordlet.serving.notify import Notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_one_datagram_for_each_call(tmp_path: Path, abstract: bool) -> None:
    name = f"koordlet-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": "@" + name if abstract else name})
        notifier.send("READY=1", "STATUS=managing 1 pods")
        notifier.send("WATCHDOG=1")
        assert manager.recv(4096) == b"READY=1\nSTATUS=managing 1 pods"
        assert manager.recv(4096) == b"WATCHDOG=1"
        notifier.close()
        notifier.send("STOPPING=1")
        notifier.close()


def test_without_a_manager_or_with_a_dead_one_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).send("READY=1")


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_it_asks_for(environ: dict[str, str], watchdog_s: float | None) -> None:
    assert Notifier(environ).watchdog_s == watchdog_s
