"""A node: containerd and kubelet, real, in folders and cgroups of the tests' own.

What kubelet changes on the machine outside of them (three sysctls, the directory of device plugins)
is as before when the node ends.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from tests.realkube import network
from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane, free_ports
from tests.realkube.kubectl import kubectl
from tests.runtime import machine
from tests.runtime.config import SUITES
from tests.runtime.containerd import Containerd, binaries_of
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet as Hands
from tests.runtime.process import Process

NODE = "localhost"
"""Its name is where kubelet listens: who asks it by the node's name gets there, nobody else can."""
USER = f"system:node:{NODE}"
USERS = {USER: ("system:nodes",)}
"""For the control plane of a node."""
READY_S = 180.0
VERSION = "2.x"
"""Of containerd: kubelet 1.37 asks it for its cgroup driver, which 1.7 does not answer."""
_SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")  # fixed, whatever kubelet's root is


def why_not() -> str:
    """Why there is no node on this machine; empty where there is one."""
    if reason := machine.why_not():
        return reason
    if not binaries_of(VERSION).exists():
        return f"no containerd {VERSION}: tools/fetch-runtime {SUITES[VERSION]} says why"
    return ""


class Node:
    """``plane`` has the objects; its user USER is this node."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.containerd = Containerd(VERSION)
        self.work = self.containerd.work / "kubelet"
        self.work.mkdir()
        (self.port,) = free_ports(1)
        network.install(self.containerd.work / "cni")
        self._config = self.work / "config.json"
        self.kubelet = Process(
            [
                program("kubelet"),
                f"--config={self._config}",
                f"--kubeconfig={plane.kubeconfig_of(USER)}",
                f"--root-dir={self.work / 'root'}",
                f"--hostname-override={NODE}",
                "--v=1",
            ],
            self.work / "log",
        )

    @property
    def kubelet_ca(self) -> Path:
        return self.work / "serving.crt"

    @property
    def pod_resources(self) -> Path:
        return self.work / "root" / "pod-resources" / "kubelet.sock"

    def start(self) -> None:
        """Returns when the node is Ready. Raises AssertionError with the end of kubelet's log."""
        for root in machine.hierarchies():
            _group(root / machine.NAME)
        self.containerd.start()
        self.containerd.import_images()
        self._certificate()
        self._config.write_text(json.dumps(self._settings()))
        self.kubelet.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        until_s = time.monotonic() + READY_S
        while not self._ready():
            assert self.kubelet.is_running, f"kubelet ended: {self.kubelet.said()}"
            assert time.monotonic() < until_s, f"kubelet is not ready: {self.kubelet.said()}"
            time.sleep(0.3)

    def _ready(self) -> bool:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        try:
            return kubectl(self.plane, "get", "node", NODE, f"-o=jsonpath={path}") == "True"
        except AssertionError:  # not there yet
            return False

    def end(self) -> None:
        """kubelet first, or it would start again what is removed; pods before containerd."""
        self.kubelet.end()
        if self.containerd.process.is_running:
            with (
                contextlib.suppress(grpc.RpcError, TimeoutError),
                Runtime(self.containerd.address) as runtime,
            ):
                Hands(runtime).remove_all()
        self.containerd.process.end()

    def _certificate(self) -> None:
        """kubelet's own, with the names under which it is asked."""
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", f"/CN={NODE}",
                "-addext", f"subjectAltName=DNS:{NODE},IP:127.0.0.1",
                "-keyout", self.work / "serving.key", "-out", self.kubelet_ca,
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip

    def _settings(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.port,
            "healthzPort": 0,
            "tlsCertFile": str(self.kubelet_ca),
            "tlsPrivateKeyFile": str(self.work / "serving.key"),
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.containerd.address}",
            "podLogsDir": str(self.work / "pod-logs"),
            "volumePluginDir": str(self.work / "volume-plugins"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{machine.NAME}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
            "maxOpenFiles": 20000,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            # The machine's disk and memory are other people's; nothing is evicted for them.
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "0%",
                "imagefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "enableServer": True,
            "nodeStatusUpdateFrequency": "5s",
            "shutdownGracePeriod": "0s",
            "syncFrequency": "10s",
        }


@contextlib.contextmanager
def node(plane: ControlPlane) -> Iterator[Node]:
    """Ready. Whatever happens, nothing of it remains. Use inside ``machine.alone()``."""
    with _unchanged_machine():
        made = Node(plane)
        try:
            made.start()
            yield made
        finally:
            made.end()


@contextlib.contextmanager
def _unchanged_machine() -> Iterator[None]:
    kept = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
    made = [each for each in (_DEVICE_PLUGINS, *_DEVICE_PLUGINS.parents) if not each.exists()]
    try:
        yield
    finally:
        for name, value in kept.items():
            Path("/proc/sys", name).write_text(value)
        if _DEVICE_PLUGINS in made:
            for each in (*_DEVICE_PLUGINS.glob("*"), _DEVICE_PLUGINS / "DEPRECATION"):
                each.unlink(missing_ok=True)
            for each in made:
                with contextlib.suppress(OSError):
                    each.rmdir()


def _group(directory: Path) -> None:
    """A cgroup that takes processes, also in the v1 cpuset hierarchy."""
    directory.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = directory / name
        if (directory / "cpuset.memory_migrate").exists() and not file.read_text().strip():
            file.write_text((directory.parent / name).read_text())
