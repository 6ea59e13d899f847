"""The three ways on which koordlet reaches a container, each with the real processes it needs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from tests.runtime.containerd import Containerd
from tests.runtime.machine import KUBEPODS, until
from tests.runtime.process import Process

_KOORDLET = (sys.executable, "-m", "koordlet")
_CONFIG = """
[node]
name = "test-node"
{node}
[paths]
state_dir = "{work}/state"
run_dir = "{work}"
[daemon]
on_stop = "restore"
[api]
socket = "{api}"
[metrics]
listen = "off"
[sources]
kubepods_root = "{kubepods}"
cri = "{cri}"
[nri]
enable = {nri}
socket = "{nri_socket}"
[hook-server]
enable = {hook_server}
socket = "{work}/hooks.sock"
config_dir = "{hooks_d}"
{body}
"""


class Way(StrEnum):
    RECONCILE = "reconcile"
    NRI = "nri"
    PROXY = "proxy"


class Koordlet:
    """``koordlet run`` on ``containerd``, which tells of pods on that one ``way``; ``lists``: of
    all pods by CRI as well, as where koordlet may have been away.

    ``node``: more keys of the table [node]; ``body``: further tables.
    """

    def __init__(
        self,
        containerd: Containerd,
        way: Way,
        work: Path,
        *,
        lists: bool = False,
        node: str = "",
        body: str = "",
    ) -> None:
        work.mkdir()
        self.api = work / "koordlet.sock"
        self.hooks_d = work / "hookserver.d"
        self._notify = work / "notify.sock"
        config = work / "koordlet.toml"
        config.write_text(
            _CONFIG.format(
                work=work, api=self.api, hooks_d=self.hooks_d, node=node, body=body,
                kubepods=KUBEPODS,
                cri=containerd.address if lists or way is Way.RECONCILE else "off",
                nri=str(way is Way.NRI).lower(), nri_socket=containerd.nri,
                hook_server=str(way is Way.PROXY).lower(),
            )
        )  # fmt: skip
        self.process = Process(
            [*_KOORDLET, "run", "--config", config],
            work / "log",
            {"NOTIFY_SOCKET": str(self._notify)},
        )

    def start(self) -> None:
        """Returns when it is ready. Raises RuntimeError with the end of its log."""
        self._notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self._notify))
            notify.settimeout(0.1)
            self.process.start()
            until(lambda: _is_ready(notify) or not self.process.is_running, "koordlet is ready")
        if not self.process.is_running:
            raise RuntimeError(f"koordlet did not start:\n{self.process.said()}")

    def ask(self, *command: str, good: bool = True) -> object:
        """A command of the CLI, as JSON. ``good``: raise CalledProcessError for a bad finding."""
        done = subprocess.run(
            [*_KOORDLET, *command, "--socket", str(self.api), "-o", "json"],
            check=good, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return json.loads(done.stdout)


class Proxy:
    """``koordlet runtime-proxy`` in front of ``containerd``."""

    def __init__(self, containerd: Containerd, work: Path, hooks_d: Path) -> None:
        work.mkdir()
        self.address = str(work / "proxy.sock")
        self.process = Process(
            [*_KOORDLET, "runtime-proxy", "--koord-runtimeproxy-endpoint", self.address,
             "--remote-runtime-service-endpoint", containerd.address,
             "--hook-config-dir", hooks_d, "--status-socket", work / "status.sock"],
            work / "log",
        )  # fmt: skip

    def start(self) -> None:
        """Returns when somebody listens on its socket."""
        self.process.start()
        until(lambda: _connects(self.address) or not self.process.is_running, "the proxy listens")
        if not self.process.is_running:
            raise RuntimeError(f"the proxy did not start:\n{self.process.said()}")


def _is_ready(notify: socket.socket) -> bool:
    try:
        return b"READY=1" in notify.recv(4096)
    except TimeoutError:
        return False


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address) == 0


class Setup:
    """Daemon and, on that way, proxy; ``address`` is where kubelet shall go."""

    def __init__(
        self,
        containerd: Containerd,
        way: Way,
        *,
        lists: bool = False,
        node: str = "",
        body: str = "",
    ) -> None:
        number = len(list(containerd.work.glob("koordlet-*")))
        work = containerd.work / f"koordlet-{number}"
        self.way = way
        self.containerd = containerd
        self.koordlet = Koordlet(containerd, way, work, lists=lists, node=node, body=body)
        self.proxy: Proxy | None = None
        self.address = containerd.address
        if way is Way.PROXY:
            self.proxy = Proxy(containerd, work / "proxy", self.koordlet.hooks_d)
            self.address = self.proxy.address

    def start(self) -> None:
        """Returns when koordlet is asked about each new pod, or looks at it."""
        registered = _registrations(self.containerd)
        self.koordlet.start()
        if self.proxy is not None:
            self.proxy.start()
        if self.way is Way.NRI:
            until(
                lambda: _registrations(self.containerd) > registered, "containerd took the plugin"
            )

    def end(self) -> None:
        if self.proxy is not None:
            self.proxy.process.end()
        self.koordlet.process.end()


@contextmanager
def running(
    containerd: Containerd, way: Way, *, lists: bool = False, node: str = "", body: str = ""
) -> Iterator[Setup]:
    """Started; what it says on the way out is shown with a failing test."""
    setup = Setup(containerd, way, lists=lists, node=node, body=body)
    try:
        setup.start()
        yield setup
    finally:
        setup.end()
        print(setup.koordlet.process.said())
        if setup.proxy is not None:
            print(setup.proxy.process.said())


def _registrations(containerd: Containerd) -> int:
    """How often an NRI plugin of ours was synchronised, by containerd's own log."""
    return (containerd.work / "log").read_text(errors="replace").count("koordlet_nri")
