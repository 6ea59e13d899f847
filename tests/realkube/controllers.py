"""kube-controller-manager, with the controllers that make pods of what users write, and
kube-scheduler, which places them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane, free_ports
from tests.runtime.process import Process

_CONTROLLERS = (
    "daemonset-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
)
"""Those of nodes are left out: a node of the tests is away on purpose."""


class Controllers:
    """Both do without a lease: nobody else is there."""

    def __init__(self, plane: ControlPlane, *more: str) -> None:
        """``more``: controllers that others do without."""
        self.scheduler = _process(plane, "kube-scheduler")
        names = ",".join((*_CONTROLLERS, *more))
        self.manager = _process(plane, "kube-controller-manager", f"--controllers={names}")

    def start(self) -> None:
        self.scheduler.start()
        self.manager.start()

    def revive(self) -> None:
        """They end where the API server is away too long."""
        for each in (self.scheduler, self.manager):
            if not each.is_running:
                each.start()

    def end(self) -> None:
        self.scheduler.end(9)
        self.manager.end(9)


@contextlib.contextmanager
def controllers(plane: ControlPlane, *more: str) -> Iterator[Controllers]:
    made = Controllers(plane, *more)
    try:
        made.start()
        yield made
    finally:
        made.end()


def _process(plane: ControlPlane, name: str, *options: str) -> Process:
    (port,) = free_ports(1)
    work = Path(plane.work) / name
    work.mkdir()
    config = plane.kubeconfig
    return Process(
        [
            program(name),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={work}",
            *options,
        ],
        work / "log",
    )
