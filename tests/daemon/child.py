"""`koordlet run` as a child, with cgroups, directories and sockets of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from tests.controllers import pass_on, passed_on

TIMEOUT_S = 60.0
"""Against a hang, not a measure: others use this machine."""
_POLITE = {"cpu.shares": "102", "cpu.weight": "10"}
"""Of the burner beside the rest of the machine, where its niceness does not count: otherwise it
takes as much of a CPU as the commands that a test waits for."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KOORDLET = (sys.executable, "-m", "koordlet")
CONFIG = """
[node]
name = "test-node"
[paths]
state_dir = "{state}"
run_dir = "{run}"
[api]
socket = "{run}/koordlet.sock"
[metrics]
listen = "{listen}"
[sources]
kubepods = false
[evictions]
start_grace_seconds = 0
[daemon]
on_stop = "{on_stop}"
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
[[applications]]
name = "shop"
cgroup = "{ls}"
qos = "LS"
[[applications]]
name = "batch"
cgroup = "{be}"
qos = "BE"
"""


def why_not() -> str:
    """Why no daemon can be tried on this machine; empty when one can."""
    if os.geteuid() != 0:
        return "needs root"
    layout = detect(LinuxHost())
    if "cpu" not in layout.v1 and "cpu" not in layout.v2_controllers:
        return "needs the cpu controller of cgroup, v1 or v2"
    return ""


class Child:
    """``ls`` and ``be`` are its applications' cgroups."""

    def __init__(self, directory: Path, ls: str, be: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self.directory, self.ls, self.be = directory, ls, be
        self.state, self.run_dir = directory / "state", directory / "run"
        self.run_dir.mkdir()
        self.socket = str(self.run_dir / "koordlet.sock")
        self.config = directory / "koordlet.toml"
        self.cgroups = Cgroups(LinuxHost(), detect(LinuxHost()))
        self.process: subprocess.Popen[bytes] | None = None
        self._log = (directory / "log").open("ab")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(directory / "notify"))
        self._notify.settimeout(timeout_s)
        self.configure()

    def configure(self, more: str = "", on_stop: str = "keep", listen: str = "") -> None:
        self.config.write_text(
            CONFIG.format(
                state=self.state,
                run=self.run_dir,
                listen=listen or f"unix:{self.run_dir}/metrics.sock",
                on_stop=on_stop,
                ls=self.ls,
                be=self.be,
            )
            + more
        )

    def start(self, *more: str, watchdog_us: int | None = None) -> None:
        """Returns when it has said READY=1; fails when it ends before."""
        environ = {**os.environ, "NOTIFY_SOCKET": str(self.directory / "notify")}
        if watchdog_us is not None:
            environ["WATCHDOG_USEC"] = str(watchdog_us)
        self.process = subprocess.Popen(
            [*KOORDLET, "run", "--config", str(self.config), *more],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environ,
        )  # fmt: skip
        while not self.heard().startswith("READY=1"):
            assert self.process.poll() is None, self.log()

    def heard(self) -> str:
        """The next message to the service manager."""
        return self._notify.recv(4096).decode()

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KOORDLET, *arguments, "--socket", self.socket],
            check=check, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def ask(self, *arguments: str) -> dict[str, object]:
        return msgspec.json.decode(self.cli(*arguments, "-o", "json").stdout)

    def restore(self) -> subprocess.CompletedProcess[str]:
        """By whoever can: the daemon or, without one, the journal."""
        return self.local("restore")

    def local(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that works without the daemon as well."""
        return subprocess.run(
            [*KOORDLET, *arguments, "--config", str(self.config)],
            check=False, capture_output=True, text=True, timeout=self._timeout_s,
        )  # fmt: skip

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(self._timeout_s)
        self.process = None
        return code

    def cpu_s(self) -> float:
        """What the daemon has used so far."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS_PER_S

    def rss_mib(self) -> float:
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS in /proc/PID/status")

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._notify.close()
        self._log.close()


def until(true: Callable[[], object], what: str, within_s: float = TIMEOUT_S) -> None:
    """Waits for what another process does."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


@contextmanager
def children(directory: Path, number: int) -> Iterator[Child]:
    """A child to be started, on two fresh cgroups with a burner in the best-effort one."""
    host = LinuxHost()
    layout = detect(host)
    top = f"koordlet-test-{os.getpid()}-{number}"
    ls, be = f"{top}/ls", f"{top}/be"
    roots = [Path(root) for root in layout.roots]
    burner: subprocess.Popen[bytes] | None = None
    child: Child | None = None
    with passed_on(host, layout.v2):
        try:
            for root in roots:
                for cgroup in (top, ls, be):
                    (root / cgroup).mkdir()
                    fill_cpuset(root, cgroup)
            if layout.v2 is not None:
                pass_on(host, f"{layout.v2}/{top}")
            for root in roots:
                for name, value in _POLITE.items():
                    if (root / top / name).exists():
                        (root / top / name).write_text(value)
            burner = subprocess.Popen(
                [sys.executable, "-S", "-c", "while True: pass"], preexec_fn=_join(roots, be)
            )
            child = Child(directory, ls, be)
            yield child
        finally:
            if child is not None:
                child.close()
            if burner is not None:
                burner.kill()
                burner.wait()
            for root in roots:
                for cgroup in (be, ls, top):
                    remove(root / cgroup)


def _join(roots: list[Path], cgroup: str) -> Callable[[], None]:
    def join() -> None:
        for root in roots:
            (root / cgroup / "cgroup.procs").write_text("0")
        os.nice(19)  # the machine has others to serve

    return join


def fill_cpuset(root: Path, cgroup: str) -> None:
    """A v1 cpuset takes tasks only when it has CPUs and memory nodes."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = root / cgroup / name
        if (root / "cpuset.sched_load_balance").exists() and file.exists():
            file.write_text((file.parent.parent / name).read_text())


def remove(directory: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                pytest.fail(f"{directory} cannot be removed")
            time.sleep(0.05)
