"""A private containerd: real, with CRI and NRI on, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import grpc

from tests.runtime import images
from tests.runtime.config import SUITES, containerd_config
from tests.runtime.cri import Runtime
from tests.runtime.machine import WORK
from tests.runtime.process import Process

_TIMEOUT_S = 20.0


def binaries_of(version: str) -> Path:
    """Where tools/fetch-runtime puts them."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "koordlet" / "runtime" / SUITES[version] / "bin"


class Containerd:
    """``version`` is one of SUITES."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.work = WORK / version
        self.address = str(self.work / "containerd.sock")
        self.nri = str(self.work / "nri.sock")
        self._binaries = binaries_of(version)
        self.work.mkdir(parents=True)
        config = self.work / "config.toml"
        config.write_text(containerd_config(version, self.work, self._binaries))
        self.process = Process(
            [self._binaries / "containerd", "-c", config, "-l", "info"],
            self.work / "log",
            {"PATH": f"{self._binaries}:{os.environ['PATH']}"},  # where it finds its shim
        )

    def start(self) -> None:
        """Returns when CRI answers. Raises RuntimeError with the end of its log."""
        self.process.start()
        deadline = time.monotonic() + _TIMEOUT_S
        with Runtime(self.address) as runtime:
            while not _answers(runtime):
                if not self.process.is_running or time.monotonic() > deadline:
                    said = self.process.said()
                    raise RuntimeError(f"containerd {self.version} did not start:\n{said}")
                time.sleep(0.02)

    def import_images(self) -> None:
        tar = self.work / "images.tar"
        images.build(tar, self._binaries / "busybox")
        subprocess.run(
            [self._binaries / "ctr", "-a", self.address, "-n", "k8s.io", "images", "import", tar],
            check=True, capture_output=True,
        )  # fmt: skip

    def restart(self) -> None:
        """Pods go on meanwhile."""
        self.process.end()
        self.start()


def _answers(runtime: Runtime) -> bool:
    try:
        runtime.version()
    except grpc.RpcError:
        return False
    return True
