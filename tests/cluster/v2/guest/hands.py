"""Do in the guest what a test asks for over TCP: a line of JSON in, a line of JSON back.

``hands.py FILE``: the token that each line must hold is in FILE.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = 29590
TOKEN = Path(sys.argv[1]).read_text().strip()
WATCH_EVERY_S = 0.05
MOST_BYTES = 65536
"""Of a file: it is read at once, which is cheap on an emulated CPU."""
PATH = "/srv/koordlet/node/bin:/opt/koordlet/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Watch:
    """Each change of value of files, with the guest's monotonic time."""

    def __init__(self, patterns: list[str]) -> None:
        self.changes: list[tuple[float, str, str]] = []
        self._patterns = patterns
        self._ended = threading.Event()
        self._last: dict[str, str] = {}
        self._look()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(WATCH_EVERY_S):
            self._look()

    def _look(self) -> None:
        found = read(self._patterns)
        now = time.monotonic()
        for path in self._last.keys() | found.keys():
            value = found.get(path, "")
            if self._last.get(path) != value:
                self.changes.append((now, path, value))
        self._last = found

    def end(self) -> dict[str, Any]:
        self._ended.set()
        self._thread.join()
        return {"changes": self.changes, "until": time.monotonic()}


def read(patterns: list[str]) -> dict[str, str]:
    found = {}
    for pattern in patterns:
        for path in glob.glob(pattern, recursive=True) if "*" in pattern else [pattern]:
            try:
                fd = os.open(path, os.O_RDONLY)
            except OSError:
                continue
            with contextlib.suppress(OSError):
                found[path] = os.read(fd, MOST_BYTES).decode(errors="replace").strip()
            os.close(fd)
    return found


def shell(text: str, limit_s: float) -> dict[str, Any]:
    child = subprocess.Popen(
        ["sh", "-c", text],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "PATH": PATH, "HOME": "/root"},
    )
    try:
        out, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
    return {"out": out.decode(errors="replace"), "code": child.returncode}


_watches: dict[str, Watch] = {}


def watch(name: str, patterns: list[str]) -> dict[str, Any]:
    _watches[name] = Watch(patterns)
    return {}


def watched(name: str) -> dict[str, Any]:
    return _watches.pop(name).end()


DOES: dict[str, Callable[..., dict[str, Any]]] = {
    "shell": shell,
    "read": lambda patterns: {"files": read(patterns), "now": time.monotonic()},
    "watch": watch,
    "watched": watched,
}


class Hands(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        if asked.pop("token") == TOKEN:
            answer = DOES[asked.pop("do")](**asked)
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    print("hands are there", flush=True)
    Server(("0.0.0.0", PORT), Hands).serve_forever()
