"""``koordlet run`` as a child with files of its own, watched from outside."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from koordlet.admin.client import Client
from koordlet.demo.managed import go_on, stand_still
from koordlet.demo.process import die_with_parent
from koordlet.demo.waits import task_times

# An emulated guest on a busy machine takes most of a minute for either.
_READY_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_IMPORT = """\
from koordlet.cli.process import lean
with lean.unavailable(*lean.UNUSED):
    import koordlet.cli.main, koordlet.cli.process.run
import koordlet.admin.server
"""
_PATHS = """\
[evictions]
start_grace_seconds = 0
[daemon]
on_stop = "restore"
log_level = "warning"
cpu_budget_percent = 0

[paths]
state_dir = "{directory}/state"
run_dir = "{directory}/run"

[api]
socket = "{directory}/run/koordlet.sock"

[metrics]
listen = "unix:{directory}/run/metrics.sock"
"""


class DaemonFailedError(Exception):
    """The daemon did not start, ended by itself, or did not stop; the text has its last words."""


class Daemon:
    """A running one. ``directory`` holds its configuration, state, sockets and log."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.pid = process.pid
        self.started_s = time.monotonic()
        self._process = process
        self._stands_still = False

    @property
    def socket(self) -> Path:
        return self.directory / "run" / "koordlet.sock"

    def configure(self, config: str) -> None:
        """Another rest of ``koordlet.toml``, taken up at once."""
        _write(self.directory, config)
        self._process.send_signal(signal.SIGHUP)

    def pause(self) -> None:
        """Put back all that it has set, and stand still. Raises as ``stand_still``."""
        if not self._stands_still:
            stand_still(self._process, self.socket)
            self._stands_still = True

    def resume(self) -> None:
        """Go on managing after ``pause``."""
        if self._stands_still:
            self._stands_still = False
            go_on(self._process, self.socket)

    def take_up(self, config: str) -> None:
        """Another rest of ``koordlet.toml``, in force when this returns."""
        _write(self.directory, config)
        with Client(str(self.socket)) as client:
            client.reload()

    def check(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise DaemonFailedError(f"koordlet run ended with {code}: {self._tail()}")

    def cpu_s(self) -> float:
        """CPU used since its start. The scheduler's own account (nanoseconds), of all threads:
        user and system time in ``stat`` are only as fine as its clock ticks."""
        return task_times([str(self.pid)]).ran_s

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def metrics(self) -> dict[str, float]:
        """The page: series with its labels -> value. Raises OSError when nobody answers."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_STOP_TIMEOUT_S)
            connection.connect(str(self.directory / "run" / "metrics.sock"))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        lines = answer.partition(b"\r\n\r\n")[2].decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in samples}

    def ask(self, *arguments: str) -> bytes:
        """What ``koordlet ARGUMENTS`` prints, asked at its socket. Raises CalledProcessError."""
        command = [sys.executable, "-m", "koordlet", *arguments, "--socket", str(self.socket)]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout

    def stop(self) -> None:
        """Raises DaemonFailedError when it does not end well; it is dead in any case, and what it
        wrote is put back."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            restore(self.directory)
            raise DaemonFailedError(f"koordlet run did not stop: {self._tail()}") from None
        if code:
            restore(self.directory)
            raise DaemonFailedError(f"koordlet run ended with {code}: {self._tail()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _tail(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-5:]) or "it printed nothing"


def restore(directory: Path) -> None:
    """Put back what the journal of a dead daemon still lists."""
    file = directory / "koordlet.toml"
    if file.exists():
        subprocess.run(
            [sys.executable, "-m", "koordlet", "restore", "--config", str(file)],
            stdout=subprocess.DEVNULL,
            check=False,
        )


@cache
def _environment() -> dict[str, str]:
    """With bytecode, as an installed koordlet has it, also where the environment forbids to write
    it beside the sources. Compiling is more than half of a start without it."""
    directory = tempfile.mkdtemp(prefix=f"koordlet-bench-{os.getpid()}-bytecode-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": directory}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", _IMPORT], env=environment, check=True)
    return environment


def prepare() -> None:
    """What the first start needs, so that its time is that of the daemon alone."""
    _environment()


@contextmanager
def daemon(config: str) -> Iterator[Daemon]:
    """Started, ready, and ended with the block. ``config``: the rest of ``koordlet.toml``."""
    directory = Path(tempfile.mkdtemp(prefix=f"koordlet-bench-{os.getpid()}-"))
    try:
        child = _start(directory, config)
        try:
            yield child
        except BaseException:
            with contextlib.suppress(DaemonFailedError):
                child.stop()
            raise
        child.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, config: str) -> Daemon:
    for name in ("state", "run"):
        (directory / name).mkdir()
    file = _write(directory, config)
    address = str(directory / "notify.sock")
    parent = os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(address)
        ready.settimeout(0.1)
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "koordlet", "run", "--config", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), "NOTIFY_SOCKET": address},
                preexec_fn=lambda: die_with_parent(parent),
            )
        child = Daemon(directory, process)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        try:
            while not _says_ready(ready):
                child.check()
                if time.monotonic() > deadline:
                    raise DaemonFailedError("koordlet run did not get ready")
        except BaseException:
            child.kill()
            raise
    return child


def _write(directory: Path, config: str) -> Path:
    """Whole at any instant: the daemon looks at it every two seconds."""
    file = directory / "koordlet.toml"
    fresh = directory / "koordlet.toml.new"
    fresh.write_text(_PATHS.format(directory=directory) + config)
    return fresh.replace(file)


def _says_ready(ready: socket.socket) -> bool:
    try:
        return b"READY=1" in ready.recv(4096)
    except TimeoutError:
        return False
