"""How container runtimes name the cgroups of pods and containers (docs/reference/wire.md 5.1)."""

from __future__ import annotations

from koordlet.kernel.cgroup.cgroups import check_path
from koordlet.kernel.cgroup.kubepods import Driver, container_dir
from koordlet.state.units import slice_path

_MAX_NAME = 255  # NAME_MAX


def pod_cgroup(parent: str) -> str | None:
    """``cgroup_parent`` as kubelet gives it to a runtime -> cgroup; None where it is empty.

    With systemd the last name alone counts, and tells where the slice is (systemd.slice(5)).
    Raises ValueError for the root and for what is no path.
    """
    if not parent:
        return None
    path = parent.strip("/")
    name = path.rpartition("/")[2]
    if len(name) > _MAX_NAME:
        raise ValueError(f"cgroup parent {name[:40]!r}...: longer than {_MAX_NAME} bytes")
    cgroup = slice_path(name) if name.endswith(".slice") else path
    check_path(cgroup)
    if not cgroup:
        raise ValueError(f"cgroup parent {parent!r}: the root cgroup is no pod's")
    return cgroup


def container_cgroup(pod: str, container_id: str, *, is_sandbox: bool = False) -> str | None:
    """Where the runtime puts a container of the pod with this cgroup.

    ``container_id`` has its runtime's scheme; None where that is none we know.
    """
    identity = container_id.rpartition("://")[2]
    if not (identity.isascii() and identity.replace("-", "").replace("_", "").isalnum()):
        return None
    driver = Driver.SYSTEMD if pod.endswith(".slice") else Driver.CGROUPFS
    if is_sandbox and container_id.startswith("cri-o://"):
        driver = Driver.CGROUPFS  # CRI-O's sandbox is ``crio-<id>`` under both drivers
    try:
        return f"{pod}/{container_dir(driver, container_id)}"
    except ValueError:
        return None
