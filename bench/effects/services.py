"""The services of the effect benches: real programs, from ``tools/fetch-services``.

Each function starts one in a group of a stage and returns when it works. A program that cannot be
had is a NotMeasuredError with the reason.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.effects.client import Load, connect
from bench.effects.stage import Running, Stage
from bench.figures import NotMeasuredError

_ROOT = Path(__file__).parents[2]
_READY_TIMEOUT_S = 20.0
_LOOK_S = 0.02
_WORDS = ("latency", "quota", "burst", "period", "weight", "node", "pod", "cgroup", "kernel")

_NGINX = """\
daemon off;
user root;
pid {directory}/nginx.pid;
error_log stderr warn;
worker_processes {workers};
events {{ worker_connections 4096; accept_mutex off; }}
http {{
  access_log off;
  gzip on; gzip_http_version 1.0; gzip_types *;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  server {{ listen {address} backlog=4096; root {directory}/www; }}
}}
"""


@dataclass(frozen=True)
class Programs:
    """Paths of what was unpacked, and the environment it runs in."""

    directory: Path

    def path(self, program: str) -> str:
        return str(self.directory / "bin" / program)

    @property
    def env(self) -> Mapping[str, str]:
        return {"LD_LIBRARY_PATH": str(self.directory / "lib")}


@cache
def programs() -> Programs:
    """Fetched once, then from the cache. Raises NotMeasuredError where they cannot be had."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(cache_home) / "koordlet" / "services"
    done = subprocess.run(
        [_ROOT / "tools" / "fetch-services", directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise NotMeasuredError(why[-1] if why else "tools/fetch-services failed")
    return Programs(directory)


@dataclass(frozen=True)
class Nginx:
    running: Running
    address: str

    def load(self, rate_per_s: float, seconds: float, *, burst: int = 1, seed: int = 1) -> Load:
        """A page a connection, compressed for each."""
        return Load(
            address=self.address,
            request=b"GET /page.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n",
            reply_begins=b"HTTP/1.1 200",
            rate_per_s=rate_per_s,
            seconds=seconds,
            burst=burst,
            seed=seed,
        )


def nginx(
    on: Stage, group: str, *, workers: int, page_bytes: int = 32768, host: str = "127.0.0.1"
) -> Nginx:
    """Compresses a page of text for each request: CPU work as dynamic pages are."""
    found = programs()
    directory = on.directory / "nginx"
    (directory / "www").mkdir(parents=True)
    draw = random.Random(1)
    text = " ".join(draw.choice(_WORDS) for _ in range(page_bytes // 4))[:page_bytes]
    (directory / "www" / "page.html").write_text(text)
    address = f"{host}:{_free_port(host)}"
    config = directory / "nginx.conf"
    config.write_text(_NGINX.format(directory=directory, address=address, workers=workers))
    command = [found.path("nginx"), "-p", str(directory), "-c", str(config)]
    running = on.start("nginx", group, command, found.env)
    _wait_for(running, address)
    return Nginx(running, address)


@dataclass(frozen=True)
class Redis:
    running: Running
    address: str
    keys: int
    value_bytes: int

    def load(self, rate_per_s: float, seconds: float, *, burst: int = 1, seed: int = 1) -> Load:
        """GET of a random key, on connections that are kept."""
        head = f"${self.value_bytes}\r\n"
        return Load(
            address=self.address,
            request=b"GET key:%d\r\n",
            reply_begins=head.encode(),
            rate_per_s=rate_per_s,
            seconds=seconds,
            reply_bytes=len(head) + self.value_bytes + len("\r\n"),
            keys=self.keys,
            burst=burst,
            seed=seed,
        )


def redis(
    on: Stage, group: str, *, keys: int = 10_000, value_bytes: int = 1024, host: str = "127.0.0.1"
) -> Redis:
    """Holds ``keys`` values in memory and never writes to disk."""
    found = programs()
    port = _free_port(host)
    options = {
        "port": str(port),
        "bind": host,
        "protected-mode": "no",
        "dir": str(on.directory),
        "save": "",
        "appendonly": "no",
        "enable-debug-command": "yes",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    running = on.start("redis", group, [found.path("redis-server"), *arguments], found.env)
    address = f"{host}:{port}"
    _wait_for(running, address)
    with connect(address) as connection:
        connection.sendall(f"DEBUG POPULATE {keys} key {value_bytes}\r\n".encode())
        answer = connection.recv(256)
    if answer != b"+OK\r\n":
        raise NotMeasuredError(f"redis: DEBUG POPULATE answers {answer!r}")
    return Redis(running, address, keys, value_bytes)


@dataclass(frozen=True)
class Ffmpeg:
    running: tuple[Running, ...]
    progress: tuple[Path, ...]

    def frames(self) -> int:
        """Encoded so far, by all."""
        return sum(_last_frame(file) for file in self.progress)


def ffmpeg(on: Stage, group: str, *, jobs: int, threads: int = 2, size: str = "640x360") -> Ffmpeg:
    """Endless transcodings of a test picture to H.264, ``threads`` encoder threads each."""
    found = programs()
    running, progress = [], []
    for job in range(jobs):
        progress.append(on.directory / f"ffmpeg-{job}.progress")
        command = [
            *(found.path("ffmpeg"), "-nostdin", "-hide_banner", "-loglevel", "error"),
            *("-stats_period", "0.2", "-progress", str(progress[-1])),
            *("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=30"),
            *("-c:v", "libx264", "-preset", "medium", "-threads", str(threads)),
            *("-f", "null", "-"),
        ]
        running.append(on.start(f"ffmpeg-{job}", group, command, found.env))
    made = Ffmpeg(tuple(running), tuple(progress))
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while not all(_last_frame(file) for file in progress):
        _still(running, deadline, "a first frame")
    return made


def _last_frame(progress: Path) -> int:
    """ffmpeg appends blocks of ``key=value`` lines."""
    try:
        with progress.open("rb") as file:
            file.seek(max(0, progress.stat().st_size - 4096))
            _, found, rest = file.read().rpartition(b"\nframe=")
    except FileNotFoundError:
        return 0
    return int(rest.split(b"\n")[0]) if found and rest else 0


@dataclass(frozen=True)
class Compiler:
    running: tuple[Running, ...]
    done: Path

    def units(self) -> int:
        """Compiled so far, by all."""
        return self.done.stat().st_size


def compiler(on: Stage, group: str, *, jobs: int, functions: int = 80) -> Compiler:
    """Compiles a generated C file of some 12 lines a function again and again."""
    found = programs()
    source = on.directory / "unit.c"
    source.write_text("\n".join(_c_function(number) for number in range(functions)))
    done = on.directory / "compiled"
    done.touch()
    script = 'while "$1" -quiet -O2 "$2" -o /dev/null; do printf . >>"$3"; done'
    command = ["/bin/sh", "-c", script, "sh", found.path("cc1"), str(source), str(done)]
    running = [on.start(f"cc1-{job}", group, command, found.env) for job in range(jobs)]
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while not done.stat().st_size:
        _still(running, deadline, "a first object")
    return Compiler(tuple(running), done)


def _c_function(number: int) -> str:
    return f"""
struct record_{number} {{ int key; double value; struct record_{number} *next; }};
double walk_{number}(struct record_{number} *first, const int *table, int count) {{
  double sum = {number};
  for (struct record_{number} *each = first; each; each = each->next)
    for (int i = 0; i < count; i++)
      switch (table[i] % 7) {{
        case 0: sum += each->value * table[i]; break;
        case 1: sum -= each->key << (i & 7); break;
        case {2 + number % 4}: sum *= 1.0 + each->value / (i + {number % 13 + 1}); break;
        default: if (each->key > i) sum += table[(i * {number % 17 + 3}) % count];
      }}
  return sum;
}}"""


def _wait_for(running: Running, address: str) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while True:
        try:
            connect(address).close()
            return
        except OSError:
            _still([running], deadline, f"a connection to {address}")


def _still(running: list[Running], deadline: float, missing: str) -> None:
    """Wait a little longer. Raises ServiceFailedError, NotMeasuredError."""
    for each in running:
        each.check()
    if time.monotonic() > deadline:
        raise NotMeasuredError(f"{running[0].name}: not {missing} in {_READY_TIMEOUT_S:.0f} s")
    time.sleep(_LOOK_S)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
