"""The daemon of the managed arm: a real ``koordlet run`` on a generated configuration."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from koordlet.admin.client import Client, DeniedError, NotReachableError, RefusedError
from koordlet.demo import stage
from koordlet.demo.process import die_with_parent
from koordlet.demo.workloads import ArmFailedError, ending

# Ready within 2 s is the daemon's promise; a loaded machine gets some more.
READY_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
_LOOK_S = 0.1

_CONFIG = """\
# Written by `koordlet demo`: one latency-sensitive and one best-effort application.

[evictions]
start_grace_seconds = 0
[daemon]
on_stop = "restore"

[paths]
state_dir = "{state}"
run_dir = "{run}"

[api]
socket = "{run}/koordlet.sock"

[metrics]
listen = "unix:{run}/metrics.sock"

[sources]
kubepods = false

# BE may use what LS and the system leave of 90 % of the node. Latency is protected by cpu.idle,
# so the reference's 65 % would only waste CPU here.
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 90

[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1

[[applications]]
name = "demo-ls"
cgroup = "{ls}"
qos = "LS"

[[applications]]
name = "demo-be"
cgroup = "{be}"
qos = "BE"
"""


class ManagedDaemon:
    """A child ``koordlet run``; its state lives below `directory` and goes with it."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self._run = directory / "run"
        self._log = directory / "koordlet.log"
        self._config = directory / "koordlet.toml"
        self._process: subprocess.Popen[bytes] | None = None
        self._stands_still = False

    def start(self) -> None:
        """Returns when the daemon has said READY=1. Raises ArmFailedError with what it said."""
        for path in (self.state, self._run):
            path.mkdir(parents=True, exist_ok=True)
        write_config(self._config, self.state, self._run)
        address = self._run / "notify.sock"
        parent = os.getpid()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(address))
            ready.settimeout(_LOOK_S)
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "koordlet", "run", "--config", str(self._config)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "NOTIFY_SOCKET": str(address)},
                    preexec_fn=lambda: die_with_parent(parent),
                )
            deadline = time.monotonic() + READY_TIMEOUT_S
            while not _says_ready(ready):
                self.check()
                if time.monotonic() > deadline:
                    raise ArmFailedError(
                        f"koordlet run was not ready within {READY_TIMEOUT_S:.0f} s: {self._tail()}"
                    )

    def check(self) -> None:
        """Raises ArmFailedError if the daemon has ended."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise ArmFailedError(f"koordlet run {ending(code)}: {self._tail()}")

    def pause(self) -> None:
        """Put back all that it has set, then stand still: its ticks would take CPU. Raises
        ArmFailedError."""
        if self._process is None or self._stands_still:
            return
        with self._asking():
            stand_still(self._process, self._run / "koordlet.sock")
        self._stands_still = True

    def resume(self) -> None:
        """Go on managing after ``pause``. Raises ArmFailedError."""
        if self._process is None or not self._stands_still:
            return
        self._stands_still = False
        with self._asking():
            go_on(self._process, self._run / "koordlet.sock")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (NotReachableError, DeniedError, RefusedError) as error:
            raise ArmFailedError(
                f"koordlet run does not answer: {error}; {self._tail()}"
            ) from error

    def stop(self) -> None:
        """SIGTERM and wait; the daemon restores what it changed. One that did not end well is
        cleaned up after. May be called again after an interruption."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            self.restore()
        self._process = None

    def restore(self) -> None:
        """Put back what the journal of a dead daemon still lists."""
        if self._config.exists():
            subprocess.run(
                [sys.executable, "-m", "koordlet", "restore", "--config", str(self._config)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-5:]) or "it printed nothing"


def stand_still(process: subprocess.Popen[bytes], socket_file: Path) -> None:
    """Make a daemon put back all that it has set, then stop it: its ticks would take CPU. Raises
    what ``admin.client.Client`` raises."""
    with Client(str(socket_file)) as client:
        client.pause((), (), None, "an arm without koordlet")
    process.send_signal(signal.SIGSTOP)


def go_on(process: subprocess.Popen[bytes], socket_file: Path) -> None:
    """Let it manage again. Raises what ``admin.client.Client`` raises."""
    process.send_signal(signal.SIGCONT)
    with Client(str(socket_file)) as client:
        client.resume((), ())


def write_config(file: Path, state: Path, run: Path) -> None:
    """The configuration of the managed arm; `run` is for sockets."""
    file.write_text(_CONFIG.format(state=state, run=run, ls=stage.LS, be=stage.BE))


def _says_ready(address: socket.socket) -> bool:
    try:
        return b"READY=1" in address.recv(4096)
    except TimeoutError:
        return False
