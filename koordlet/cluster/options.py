"""How a node takes part in its cluster."""

from __future__ import annotations

from typing import NamedTuple

OFF = "off"
IN_CLUSTER = "in-cluster"


class Options(NamedTuple):
    """``api``: ``in-cluster``, or the path of a kubeconfig. ``node``: name of the Node.
    ``pods``: ``api``, ``kubelet`` or ``auto``. ``kubelet_ca``: file, or ``auto``. ``state_dir``:
    where the last known objects are kept."""

    api: str
    node: str
    context: str = ""
    per_second: float = 20.0
    burst: int = 30
    pods: str = "auto"
    kubelet: bool = True
    kubelet_address: str = "InternalIP"
    kubelet_ca: str = "auto"
    kubelet_dir: str = "/var/lib/kubelet"
    state_dir: str = ""
