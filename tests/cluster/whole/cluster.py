"""One node with everything real: etcd, kube-apiserver, controllers, scheduler, containerd, kubelet,
koordlet and the manager."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.whole.programs import Koordlet, Manager
from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane
from tests.realkube.controllers import Controllers, controllers
from tests.realkube.kubectl import kubectl
from tests.realkube.node import NODE, USERS, VERSION, Node, node
from tests.realkube.turn import turn
from tests.runtime.containerd import binaries_of

DEPLOY = Path(__file__).parents[3] / "deploy"
CRDS = DEPLOY / "crds"
SYSTEM = "koordinator-system"
ACCOUNTS = ("koordlet", "koord-manager")
"""ServiceAccounts of ``deploy/``, with the least rights that these programs need."""
PATIENCE_S = 300.0
"""How long anything may take on a machine that others use too."""
T = TypeVar("T")


class Whole:
    """``stage``: a directory that pods see as /stage."""

    def __init__(self, plane: ControlPlane, controllers: Controllers, node: Node) -> None:
        self.plane = plane
        self.controllers = controllers
        self.node = node
        self.stage = node.containerd.work / "stage"
        self.stage.mkdir()
        koordlet, manager = (_account(plane, name) for name in ACCOUNTS)
        self.koordlet = Koordlet(node, koordlet)
        self.manager = Manager(plane, manager)

    def apply(self, text: str) -> None:
        """As ``kubectl apply -f``. Raises AssertionError with what it said."""
        file = self.plane.work / "applied.yaml"
        file.write_text(text)
        self.kubectl("apply", "-f", str(file))

    def kubectl(self, *arguments: str) -> str:
        return kubectl(self.plane, *arguments)

    def node_object(self) -> Any:
        return self.plane.get(f"/api/v1/nodes/{NODE}")

    def pods(self, app: str) -> list[Any]:
        """Those that are not on their way out. Raises OSError while the server is away."""
        path = f"/api/v1/namespaces/shop/pods?labelSelector=app%3D{app}"
        found = self.plane.get(path)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def end(self) -> None:
        self.koordlet.process.end()
        self.manager.process.end()


def wait(
    what: str,
    probe: Callable[[], T | None],
    shows: Callable[[], object] = lambda: "",
    within_s: float | None = None,
) -> T:
    """What ``probe`` gives as soon as it is neither None nor False; an API server that is away
    (OSError) or refuses is waited for too. Raises AssertionError with ``shows``."""
    until_s = time.monotonic() + (PATIENCE_S if within_s is None else within_s)
    trouble: Exception | None = None
    while True:
        try:
            found = probe()
            if found is not None and found is not False:
                return found
        except (OSError, KeyError, IndexError, AssertionError, subprocess.TimeoutExpired) as error:
            trouble = error
        if time.monotonic() > until_s:
            raise AssertionError(f"never happened: {what}; {shows()}") from trouble
        time.sleep(0.1)


@contextlib.contextmanager
def whole(work: Path) -> Iterator[Whole]:
    """With custom resources; koordlet and the manager are not started yet. Nothing remains."""
    with turn():
        plane = ControlPlane(work, USERS)
        try:
            plane.start()
            kubectl(plane, "apply", "--server-side", "-f", str(CRDS))
            for name in ("namespace", "priorityclasses", "koordlet/rbac", "manager/rbac"):
                kubectl(plane, "apply", "-f", str(DEPLOY / f"{name}.yaml"))
            kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            with controllers(plane) as running, node(plane) as one:
                made = Whole(plane, running, one)
                try:
                    yield made
                finally:
                    made.end()
        finally:
            plane.end()


def versions() -> str:
    """Of the programs that are not ours."""
    told = (program("").parent / "version").read_text()
    etcd = re.search(r"etcd Version: (\S+)", told)
    release = re.search(r"kubernetes (\S+)", told)
    runtime = (binaries_of(VERSION).parent / "version").read_text().split()
    names = (
        ("etcd", etcd and etcd[1]),
        ("Kubernetes", release and release[1]),
        ("containerd", runtime[2]),
    )
    return ", ".join(f"{name} {version}" for name, version in names)


def _account(plane: ControlPlane, name: str) -> Path:
    """A kubeconfig with its own token."""
    token = kubectl(plane, "create", "token", name, "-n", SYSTEM, "--duration=24h").strip()
    return plane.kubeconfig_of(name, token)
