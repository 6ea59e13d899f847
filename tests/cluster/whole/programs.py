"""koordlet and the companion as processes on a real cluster."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.realkube.control_plane import ControlPlane, free_ports
from tests.realkube.node import NODE, Node
from tests.runtime import machine
from tests.runtime.process import Process

READY_S = 120.0
_COMPANION = Path(sys.executable).with_name("koord-scheduler")
_KOORDLET = """
[node]
name = "{name}"
[paths]
state_dir = "{work}/state"
run_dir = "{work}"
[api]
socket = "{work}/koordlet.sock"
[metrics]
listen = "127.0.0.1:{port}"
[sources]
kubepods_root = "{kubepods}"
cri = "{cri}"
[nri]
socket = "{nri}"
[cluster]
api = "{kubeconfig}"
kubelet_address = "Hostname"
kubelet_ca = "{kubelet_ca}"
kubelet_dir = "{kubelet_dir}"
"""


def _said(command: list[str | Path]) -> str:
    """What a command prints; some end with another code than 0 where they found something."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout or done.stderr


class Koordlet:
    """``koordlet run`` as the node's DaemonSet runs it, with its kubeconfig."""

    def __init__(self, node: Node, kubeconfig: Path) -> None:
        self.work = node.containerd.work / "koordlet"
        self.work.mkdir()
        self.socket = self.work / "koordlet.sock"
        (self.metrics_port,) = free_ports(1)
        self._notify = self.work / "notify.sock"
        config = self.work / "koordlet.toml"
        config.write_text(
            _KOORDLET.format(
                name=NODE,
                work=self.work,
                port=self.metrics_port,
                kubepods=machine.KUBEPODS,
                cri=node.containerd.address,
                nri=node.containerd.nri,
                kubeconfig=kubeconfig,
                kubelet_ca=node.kubelet_ca,
                kubelet_dir=node.work / "root",
            )
        )
        self.process = Process(
            [sys.executable, "-m", "koordlet", "run", "--config", config],
            self.work / "log",
            {"NOTIFY_SOCKET": str(self._notify)},
        )

    def start(self) -> None:
        """Returns when it is ready. Raises AssertionError with the end of its log."""
        self._notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self._notify))
            notify.settimeout(0.2)
            self.process.start()
            until_s = time.monotonic() + READY_S
            while not _is_ready(notify):
                assert self.process.is_running, f"koordlet ended:\n{self.process.said()}"
                assert time.monotonic() < until_s, f"koordlet hangs:\n{self.process.said()}"

    def command(self, *words: str) -> str:
        return _said([sys.executable, "-m", "koordlet", *words, "--socket", str(self.socket)])


class Manager:
    """``koord-scheduler run --roles manager``."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path) -> None:
        self.work = plane.work / "manager"
        self.work.mkdir()
        self.metrics_port, self.health_port, self.webhook_port = free_ports(3)
        self._kubeconfig = kubeconfig
        self.process = Process(
            [
                _COMPANION, "run", "--roles", "manager",
                "--kubeconfig", kubeconfig,
                "--metrics-addr", f"127.0.0.1:{self.metrics_port}",
                "--health-probe-addr", f"127.0.0.1:{self.health_port}",
                *self._webhook(),
            ],
            self.work / "log",
        )  # fmt: skip

    def command(self, *words: str) -> str:
        return _said([_COMPANION, *words, "--kubeconfig", self._kubeconfig])

    def _webhook(self) -> tuple[str, ...]:
        """The API server finds it on loopback, where a Service would be in a cluster."""
        where = f"127.0.0.1:{self.webhook_port}"
        return (
            "--controllers", "*,webhook,webhook-registration,colocationprofile",
            "--webhook-addr", where,
            "--webhook-url", f"https://{where}",
        )  # fmt: skip

    def start(self) -> None:
        """Returns when it is ready. Raises AssertionError with the end of its log."""
        self.process.start()
        until_s = time.monotonic() + READY_S
        while not self._ready():
            assert self.process.is_running, f"the manager ended:\n{self.process.said()}"
            assert time.monotonic() < until_s, f"the manager hangs:\n{self.process.said()}"
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.health_port}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _is_ready(notify: socket.socket) -> bool:
    try:
        return b"READY=1" in notify.recv(4096)
    except TimeoutError:
        return False
