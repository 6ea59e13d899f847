"""The services of the effect benches: real programs, from ``tools/fetch-services``.

Each function starts one in a group of a stage and returns when it works. A program that cannot be
had is a NotMeasuredError with the reason. What runs beside them is in ``batch``.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.effects.client import Load, connect
from bench.effects.stage import Running, Stage
from bench.figures import NotMeasuredError

_ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 60.0
_LOOK_S = 0.02
_READ_BYTES = 1 << 18
_OK = b"HTTP/1.1 200"
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
  {delivery}
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  server {{ listen {address} backlog=4096; root {www}; }}
}}
"""
_COMPRESSED = "gzip on; gzip_http_version 1.0; gzip_types *;"
_AS_THEY_ARE = "sendfile on;"
# Lua; the generator begins with the same seed in each process.
_FILL_LISTS = (
    "for list = 0, ARGV[1] - 1 do for item = 1, ARGV[2] do "
    "redis.call('RPUSH', 'list:' .. list, math.random(10000000, 99999999)) end end "
    "return redis.status_reply('OK')"
)


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
    """``files``: it has so many, named by number; 0: one page."""

    running: Running
    address: str
    files: int = 0

    @property
    def request(self) -> bytes:
        name = b"%d" if self.files else b"page.html"
        return b"GET /" + name + b" HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"

    def load(self, rate_per_s: float, seconds: float, *, burst: int = 1, seed: int = 1) -> Load:
        """A page a connection, or a file drawn for each."""
        return Load(
            address=self.address,
            request=self.request,
            reply_begins=_OK,
            rate_per_s=rate_per_s,
            seconds=seconds,
            keys=self.files,
            burst=burst,
            seed=seed,
        )

    def send_each(self) -> None:
        """Every file once, so that all are in memory that holds them. Raises NotMeasuredError."""
        for number in range(self.files):
            with connect(self.address) as connection:
                connection.sendall(self.request % number)
                answer = connection.recv(len(_OK), socket.MSG_WAITALL)
                while connection.recv(_READ_BYTES):
                    pass
            if answer != _OK:
                raise NotMeasuredError(f"nginx: file {number}: answers {answer!r}")


def nginx(
    on: Stage, group: str, *, workers: int, page_bytes: int = 32768, host: str = "127.0.0.1"
) -> Nginx:
    """Compresses a page of text for each request: CPU work as dynamic pages are."""
    www = on.directory / "www"
    www.mkdir()
    draw = random.Random(1)
    text = " ".join(draw.choice(_WORDS) for _ in range(page_bytes // 4))[:page_bytes]
    (www / "page.html").write_text(text)
    return Nginx(*_nginx(on, group, workers, host, www, _COMPRESSED))


def nginx_files(
    on: Stage, group: str, www: Path, files: int, *, workers: int, host: str = "127.0.0.1"
) -> Nginx:
    """Sends files of ``www``, which are named 0 to ``files`` - 1, out of the page cache."""
    return Nginx(*_nginx(on, group, workers, host, www, _AS_THEY_ARE), files)


def _nginx(
    on: Stage, group: str, workers: int, host: str, www: Path, delivery: str
) -> tuple[Running, str]:
    """Process and address of one that works."""
    found = programs()
    directory = on.directory / "nginx"
    directory.mkdir()
    address = f"{host}:{_free_port(host)}"
    config = directory / "nginx.conf"
    config.write_text(
        _NGINX.format(
            directory=directory, www=www, address=address, workers=workers, delivery=delivery
        )
    )
    command = [found.path("nginx"), "-p", str(directory), "-c", str(config)]
    running = on.start("nginx", group, command, found.env)
    _wait_for(running, address)
    return running, address


@dataclass(frozen=True)
class Redis:
    """``lists``: of numbers, beside ``keys`` values."""

    running: Running
    address: str
    keys: int
    value_bytes: int
    lists: int = 0

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

    def sorting(self, rate_per_s: float, seconds: float, *, seed: int = 1) -> Load:
        """The ten least numbers of a random list, which redis sorts for it: CPU work."""
        return Load(
            address=self.address,
            request=b"SORT list:%d LIMIT 0 10\r\n",
            reply_begins=b"*10\r\n",
            rate_per_s=rate_per_s,
            seconds=seconds,
            reply_bytes=len("*10\r\n") + 10 * len("$8\r\n12345678\r\n"),
            keys=self.lists,
            seed=seed,
        )


def redis(
    on: Stage,
    group: str,
    *,
    keys: int = 10_000,
    value_bytes: int = 1024,
    lists: int = 0,
    list_items: int = 4000,
    host: str = "127.0.0.1",
) -> Redis:
    """Holds ``keys`` values, and ``lists`` of numbers with eight digits, in memory, and never
    writes to disk."""
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
        for command in (
            f"DEBUG POPULATE {keys} key {value_bytes}",
            f'EVAL "{_FILL_LISTS}" 0 {lists} {list_items}',
        ):
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.recv(256)
            if answer != b"+OK\r\n":
                raise NotMeasuredError(f"redis: {command} answers {answer!r}")
    return Redis(running, address, keys, value_bytes, lists)


def _wait_for(running: Running, address: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            connect(address).close()
            return
        except OSError:
            wait([running], deadline, f"a connection to {address}")


def wait(running: Sequence[Running], deadline: float, missing: str) -> None:
    """A little longer. Raises ServiceFailedError, and NotMeasuredError after the deadline
    (CLOCK_MONOTONIC seconds)."""
    for each in running:
        each.check()
    if time.monotonic() > deadline:
        raise NotMeasuredError(f"{running[0].name}: not {missing} in {READY_TIMEOUT_S:.0f} s")
    time.sleep(_LOOK_S)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
