"""The services of the effect benches: real programs, from ``tools/fetch-services``, and a model
server with what ``tools/fetch-model`` has made.

Each function starts one in a group of a stage and returns when it works. A program that cannot be
had is a NotMeasuredError with the reason. What runs beside them is in ``batch``.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.effects import postgres_protocol
from bench.effects.client import Load, connect
from bench.effects.model_shape import PROMPT_TOKENS, VOCABULARY
from bench.effects.stage import Running, Stage
from bench.figures import NotMeasuredError
from koordlet.demo.ls_server import calibrate

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
# It refuses to be root. In a user namespace of its own it is not, and owns what root owns; what
# it shares through System V's calls goes with the IPC namespace when it is killed.
_NOT_ROOT = ("unshare", "--user", "--map-user=65534", "--map-group=65534", "--ipc", "--")
_POSTGRES_OPTIONS = {
    "listen_addresses": "",
    "shared_buffers": "256MB",  # more than the accounts of scale 10 need
    "dynamic_shared_memory_type": "mmap",
    "huge_pages": "off",
    "fsync": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "jit": "off",
}
# Those of pgbench, but that they begin with 0 and that all balances have as many digits.
ACCOUNTS_OF_SCALE = 100_000
_FILL_ACCOUNTS = (
    (
        "CREATE TABLE pgbench_accounts AS SELECT aid, 1 + aid / {scaled} AS bid, 10000000 + aid "
        "AS abalance, ''::char(84) AS filler FROM generate_series(0, {rows} - 1) AS aid"
    ),
    "ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)",
    "VACUUM (FREEZE, ANALYZE) pgbench_accounts",
    "CHECKPOINT",
)
_FIRST, _ITS_BALANCE = "0000000", b"10000000"
_ACCOUNT = f"SELECT abalance FROM pgbench_accounts WHERE aid = {_FIRST}"


@dataclass(frozen=True)
class Programs:
    """Paths of what was unpacked, and the environment it runs in."""

    directory: Path

    def path(self, program: str) -> str:
        return str(self.directory / "bin" / program)

    def postgres(self, program: str) -> str:
        """Return its path, among what belongs to it. Raises NotMeasuredError."""
        found = list(self.directory.glob(f"postgresql/lib/postgresql/*/bin/{program}"))
        if not found:
            raise NotMeasuredError(f"{self.directory}: no {program}")
        return str(found[0])

    @property
    def env(self) -> Mapping[str, str]:
        return {"LD_LIBRARY_PATH": str(self.directory / "lib")}


@cache
def programs() -> Programs:
    """Fetched once, then from the cache. Raises NotMeasuredError where they cannot be had."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(cache_home) / "koordlet" / "services"
    _run_tool("fetch-services", str(directory))
    return Programs(directory)


@cache
def model_directory() -> Path:
    """Make the model with ``tools/fetch-model``; raises as ``programs``."""
    _run_tool("fetch-model")
    return model_place()


def model_place() -> Path:
    """Return the directory where it is once it is made."""
    return Path(_run_tool("fetch-model", "--where").strip())


def _run_tool(name: str, *arguments: str) -> str:
    """Its output. Raises NotMeasuredError."""
    done = subprocess.run(
        [_ROOT / "tools" / name, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": sys.executable},
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise NotMeasuredError(why[-1] if why else f"tools/{name} failed")
    return done.stdout


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
    wait_for(running, address)
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
    wait_for(running, address)
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


@dataclass(frozen=True)
class Memcached:
    running: Running
    address: str
    keys: int
    value_bytes: int

    def load(self, rate_per_s: float, seconds: float, *, burst: int = 1, seed: int = 1) -> Load:
        """GET of a random key, on connections that are kept."""
        return Load(
            address=self.address,
            request=b"get key:%07d\r\n",
            reply_begins=b"VALUE key:",
            rate_per_s=rate_per_s,
            seconds=seconds,
            reply_bytes=len(_memcached_value(0, self.value_bytes)),
            keys=self.keys,
            burst=burst,
            seed=seed,
        )


def memcached(
    on: Stage,
    group: str,
    *,
    threads: int,
    keys: int = 10_000,
    value_bytes: int = 1024,
    host: str = "127.0.0.1",
) -> Memcached:
    """Holds ``keys`` values in memory."""
    found = programs()
    port = _free_port(host)
    room_mib = 64 + 2 * keys * value_bytes // 2**20
    command = [
        *(found.path("memcached"), "-u", "root", "-l", host, "-p", str(port), "-U", "0"),
        *("-t", str(threads), "-m", str(room_mib)),
    ]
    running = on.start("memcached", group, command, found.env)
    address = f"{host}:{port}"
    wait_for(running, address)
    value = b"x" * value_bytes
    with connect(address) as connection:
        for key in range(keys):
            head = b"set key:%07d 0 0 %d noreply\r\n" % (key, value_bytes)
            connection.sendall(head + value + b"\r\n")
        for key in (0, keys - 1):
            connection.sendall(b"get key:%07d\r\n" % key)
            wanted = _memcached_value(key, value_bytes)
            answer = connection.recv(len(wanted), socket.MSG_WAITALL)
            if answer != wanted:
                raise NotMeasuredError(f"memcached: key {key}: answers {answer[:80]!r}")
    return Memcached(running, address, keys, value_bytes)


def _memcached_value(key: int, value_bytes: int) -> bytes:
    """The whole reply."""
    return b"VALUE key:%07d 0 %d\r\n%s\r\nEND\r\n" % (key, value_bytes, b"x" * value_bytes)


@dataclass(frozen=True)
class Postgres:
    """``reply``: the one to a look-up, all are as long and begin alike."""

    running: Running
    address: str
    accounts: int
    reply: bytes

    def load(
        self,
        rate_per_s: float,
        seconds: float,
        *,
        burst: int = 1,
        connections: int = 8,
        seed: int = 1,
    ) -> Load:
        """The balance of a random account by its primary key, as ``pgbench --select-only`` asks."""
        return Load(
            address=self.address,
            request=postgres_protocol.template(_ACCOUNT, _FIRST),
            reply_begins=self.reply.partition(_ITS_BALANCE)[0],
            rate_per_s=rate_per_s,
            seconds=seconds,
            reply_bytes=len(self.reply),
            keys=self.accounts,
            burst=burst,
            seed=seed,
            connections=connections,
            greeting=postgres_protocol.STARTUP,
            greeted=postgres_protocol.READY,
        )


def postgres(on: Stage, group: str, *, scale: int = 10) -> Postgres:
    """Start one with the accounts of ``pgbench --initialize`` at that scale, in memory, 15 MB for
    each; on a unix socket."""
    found = programs()
    data = on.directory / "postgres"
    made = subprocess.run(
        [
            *(*_NOT_ROOT, found.postgres("initdb"), "--pgdata", str(data), "--no-sync"),
            *("--auth=trust", "--no-locale", "--encoding=UTF8"),
            f"--username={postgres_protocol.USER}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **found.env},
    )
    if made.returncode:
        raise NotMeasuredError(f"initdb: {' | '.join(made.stderr.splitlines()[-3:])}")
    options = {**_POSTGRES_OPTIONS, "unix_socket_directories": str(data)}
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = [*_NOT_ROOT, found.postgres("postgres"), "-D", str(data), *words]
    running = on.start("postgres", group, command, found.env)
    address = str(data / ".s.PGSQL.5432")
    hello = (postgres_protocol.STARTUP, postgres_protocol.READY)
    wait_for(running, address, *hello)
    accounts = scale * ACCOUNTS_OF_SCALE
    with connect(address, *hello) as connection:
        for sql in _FILL_ACCOUNTS:
            text = sql.format(scaled=ACCOUNTS_OF_SCALE, rows=accounts)
            postgres_protocol.answer(connection, postgres_protocol.query(text))
        reply = postgres_protocol.answer(connection, postgres_protocol.query(_ACCOUNT))
    if _ITS_BALANCE not in reply:
        raise NotMeasuredError(f"postgres: the first account: answers {reply!r}")
    return Postgres(running, address, accounts, reply)


@dataclass(frozen=True)
class ModelServer:
    running: Running
    address: str

    @property
    def request(self) -> bytes:
        draw = random.Random(1)
        others = [b"%d" % draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS - 1)]
        return b"GET /?prompt=" + b",".join([b"%d", *others]) + b" HTTP/1.0\r\n\r\n"

    def load(self, rate_per_s: float, seconds: float, *, seed: int = 1) -> Load:
        """The first token after a prompt that begins with a random one, a connection each."""
        return Load(
            address=self.address,
            request=self.request,
            reply_begins=b"HTTP/1.0 200",
            rate_per_s=rate_per_s,
            seconds=seconds,
            keys=VOCABULARY,
            seed=seed,
        )


def model_server(on: Stage, group: str, *, threads: int, host: str = "127.0.0.1") -> ModelServer:
    """A transformer with 110 million weights, which works one prompt of 64 tokens at a time."""
    directory = model_directory()
    port = _free_port(host)
    arguments = (str(directory / "model.onnx"), host, str(port), str(threads))
    command = [sys.executable, "-m", "bench.effects.model_server", *arguments]
    path = f"{_ROOT}:{directory / 'site'}"
    running = on.start("model-server", group, command, {"PYTHONPATH": path})
    address = f"{host}:{port}"
    wait_for(running, address)
    return ModelServer(running, address)


@dataclass(frozen=True)
class WorkerThreads:
    """The demo's service, whose work is of a known length."""

    running: Running
    address: str

    def load(self, rate_per_s: float, seconds: float, *, seed: int = 1) -> Load:
        """A connection for each request."""
        return Load(
            address=self.address,
            request=b"request\n",
            reply_begins=b"",
            rate_per_s=rate_per_s,
            seconds=seconds,
            seed=seed,
        )


def worker_threads(on: Stage, group: str, *, threads: int, work_ms: float) -> WorkerThreads:
    """Start workers that share a socket; each request takes ``work_ms`` of CPU."""
    address = str(on.directory / "service.sock")
    command = (sys.executable, "-m", "koordlet.demo.ls_server", address, str(threads))
    rounds = calibrate(work_ms)
    running = on.start("service", group, (*command, str(rounds)), {"PYTHONPATH": str(_ROOT)})
    wait_for(running, address)
    return WorkerThreads(running, address)


def wait_for(running: Running, address: str, greeting: bytes = b"", greeted: bytes = b"") -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            connect(address, greeting, greeted).close()
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
