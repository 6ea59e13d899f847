"""Local users who mean no good, against the daemon as a process: what they can take is bounded in
CPU seconds of the daemon and in bytes of its log, and others get their answers."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.daemon.child import Child, children, why_not

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a daemon can be tried here"),
]
NOBODY = 65534
LASTS_S = 4.0
_number = itertools.count(500)

BE_NOBODY = f"""
import encodings.idna, os, socket, struct, sys, time
os.setgroups([])
os.setgid(0)
os.setuid({NOBODY})
"""
CONNECT_IN_A_LOOP = """
port, until, request = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), sys.argv[3].encode()
held, made = [], 0
while time.monotonic() < until:
    sock = socket.socket()
    sock.settimeout(0.5)
    try:
        sock.connect(("127.0.0.1", port))
        sock.sendall(request)
    except OSError:
        continue
    made += 1
    held.append(sock)
    if len(held) > 200:
        held.pop(0).close()
print(made)
"""
ASK_IN_A_LOOP = """
port, until, request = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), sys.argv[3].encode()
socks = []
for _ in range(32):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    socks.append(sock)
asked = 0
while time.monotonic() < until:
    for sock in socks:
        try:
            sock.send(request)
            asked += 1
        except OSError:
            pass
        try:
            while sock.recv(1 << 20):
                pass
        except OSError:
            pass
print(asked)
"""
SAY_GO_AWAY = r"""
path, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
text = b"EVIL\n\x1b[31mlevel=error event=fake " * 200
payload = struct.pack(">II", 0, 11) + text
frame = struct.pack(">I", len(payload))[1:] + b"\x07\0" + struct.pack(">I", 0) + payload
sent = 0
while time.monotonic() < until:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(0.5)
    try:
        sock.connect(path)
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
        for _ in range(100):
            sock.sendall(frame)
            sent += 1
        sock.sendall(b"GET /\x1b[31mEVIL HTTP/1.1\r\n\r\n" * 100)
    except OSError:
        pass
    sock.close()
print(sent)
"""


@pytest.fixture
def child() -> Iterator[Child]:
    with tempfile.TemporaryDirectory(prefix="koordlet-test-") as directory:
        os.chmod(directory, 0o755)  # other users get to the sockets
        with children(Path(directory), next(_number)) as made:
            yield made


@pytest.fixture
def port(child: Child) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
    child.configure(listen=f"127.0.0.1:{found}")
    child.start()
    return found


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        found: bytes = answer.read()
        return found


def _get_soon(port: int, path: str) -> bytes:
    """The daemon may still be answering what was asked in the attack."""
    until = time.monotonic() + 10
    while True:
        try:
            return _get(port, path)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > until:
                raise
        time.sleep(0.1)


def _attacked(child: Child, script: str, *arguments: str) -> tuple[int, float]:
    """How much the attacker did, and the cores that it cost the daemon beyond its own work."""
    before_s, began_s = child.cpu_s(), time.monotonic()
    time.sleep(LASTS_S)
    own_cores = (child.cpu_s() - before_s) / (time.monotonic() - began_s)
    before_s, began_s = child.cpu_s(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-S", "-c", BE_NOBODY + script, *arguments],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cores = (child.cpu_s() - before_s) / (time.monotonic() - began_s) - own_cores
    print(f"{done.stdout.strip()} times, {cores:.3f} cores beside {own_cores:.3f} of its own")
    return int(done.stdout), cores


@pytest.mark.parametrize("count", [32, 200])
@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "loris"])
def test_idle_connections_shut_nobody_out_of_the_pages(
    child: Child, port: int, count: int, said: bytes
) -> None:
    held = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(said)
        held.append(sock)
    for _ in range(3):
        assert _get(port, "/healthz") == b"ok\n"
        assert b'"ready":true' in _get(port, "/readyz")
        assert b"koordlet_ready 1" in _get(port, "/metrics")
    page = _get(port, "/metrics").decode()
    dropped = f'koordlet_metrics_dropped_connections_total{{reason="idle"}} {float(count - 32 + 1)}'
    assert dropped in page.splitlines()
    for sock in held:
        sock.close()


@pytest.mark.parametrize(
    ("script", "request_text"),
    [
        (CONNECT_IN_A_LOOP, ""),
        (ASK_IN_A_LOOP, "GET /healthz HTTP/1.1\r\n\r\n"),
        (ASK_IN_A_LOOP, "GET /metrics HTTP/1.1\r\n\r\n"),
    ],
    ids=["connects", "health", "pages"],
)
def test_whoever_asks_in_a_loop_takes_a_part_of_a_core_at_most(
    child: Child, port: int, script: str, request_text: str
) -> None:
    times, cores = _attacked(child, script, str(port), str(LASTS_S), request_text)
    assert times > 100
    assert cores < 0.4
    assert _get_soon(port, "/healthz") == b"ok\n"
    assert b"koordlet_ready 1" in _get_soon(port, "/metrics")
    assert len(child.log()) < 20_000


def test_a_member_of_the_group_writes_no_line_of_the_log(child: Child) -> None:
    child.start()
    assert child.ask("status")["ready"] is True
    before = len(child.log())
    times, cores = _attacked(child, SAY_GO_AWAY, child.socket, str(LASTS_S))
    assert times > 10
    assert cores < 0.4
    said = child.log()[before:]
    assert "EVIL" not in said
    assert "\x1b" not in said
    assert len(said) < 10_000
    assert child.ask("status")["ready"] is True
