"""Names of the kubepods tree: what kubelet and the runtimes call cgroups
(docs/reference/qos.md 8.7).

Names are read without asking anybody: the directory itself tells the driver, since all systemd
names end in ``.slice`` or ``.scope``.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.protocol.qos import KubeQoS, QoSClass

_SLICE = ".slice"
_SCOPE = ".scope"
# scheme of a container id -> prefix of its scope.
_SCOPE_PREFIX = {
    "containerd": "cri-containerd-",
    "docker": "docker-",
    "cri-o": "crio-",
    "pouch": "pouch-",
}
_CRIO = "crio-"
_CONMON = "crio-conmon-"
_QOS_NAME = {KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}
_SYSTEM = "system"
_MAX_DEPTH = 2


_ROOT_STEMS = ("kubepods", f"kubepods-{_SYSTEM}")


class Driver(StrEnum):
    """kubelet's ``cgroupDriver``."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@dataclass(frozen=True)
class Kubepods:
    """One kubepods tree. ``root`` is its cgroup: ``kubepods.slice``, ``kubelet/kubepods``,
    ``kubelet.slice/kubelet-kubepods.slice`` ..."""

    root: str

    @property
    def driver(self) -> Driver:
        return Driver.SYSTEMD if self.root.endswith(_SLICE) else Driver.CGROUPFS

    @property
    def burstable(self) -> str:
        return self.qos_dir(KubeQoS.BURSTABLE)

    @property
    def besteffort(self) -> str:
        return self.qos_dir(KubeQoS.BEST_EFFORT)

    @property
    def system(self) -> Kubepods:
        """kubelet's partition for system pods (KEP-5894): a tree of its own inside, with a cgroup
        for each class but Guaranteed."""
        if self.driver is Driver.CGROUPFS:
            return Kubepods(f"{self.root}/{_SYSTEM}")
        return Kubepods(f"{self.root}/{self._stem}-{_SYSTEM}{_SLICE}")

    def qos_dir(self, qos: KubeQoS) -> str:
        """Guaranteed pods are directly below the root."""
        name = _QOS_NAME.get(qos)
        if name is None:
            return self.root
        if self.driver is Driver.CGROUPFS:
            return f"{self.root}/{name}"
        return f"{self.root}/{self._stem}-{name}{_SLICE}"

    def pod(self, qos: KubeQoS, uid: str) -> str:
        directory = self.qos_dir(qos)
        if self.driver is Driver.CGROUPFS:
            return f"{directory}/pod{uid}"
        stem = posixpath.basename(directory).removesuffix(_SLICE)
        return f"{directory}/{stem}-pod{uid.replace('-', '_')}{_SLICE}"

    def container(self, qos: KubeQoS, uid: str, container_id: str) -> str:
        """``container_id`` as Kubernetes has it: ``containerd://<hash>``."""
        return f"{self.pod(qos, uid)}/{container_dir(self.driver, container_id)}"

    @property
    def _stem(self) -> str:
        return posixpath.basename(self.root).removesuffix(_SLICE)


def container_dir(driver: Driver, container_id: str) -> str:
    """``containerd://X`` -> ``cri-containerd-X.scope``, or ``X``. Raises ValueError for a
    scheme that no runtime uses."""
    scheme, separator, identity = container_id.partition("://")
    prefix = _SCOPE_PREFIX.get(scheme)
    if not separator or prefix is None or not identity or "/" in identity:
        raise ValueError(
            f"container id {container_id!r} is not one of "
            + ", ".join(f"{known}://<id>" for known in _SCOPE_PREFIX)
        )
    if driver is Driver.SYSTEMD:
        return f"{prefix}{identity}{_SCOPE}"
    # CRI-O keeps its prefix under both drivers.
    return _CRIO + identity if scheme == "cri-o" else identity


INNER = "container"
"""Child of a container's scope that crun makes under the systemd driver: its processes are there,
and limits are written to both."""


def container_id_of(name: str) -> str | None:
    """Directory below a pod -> ``containerd://X``, or the bare id where the name does not tell
    the runtime. None for what is no container: conmon's own scope, slices, services."""
    if not name or name.startswith(_CONMON):
        return None
    if name.endswith(_SCOPE):
        stem = name.removesuffix(_SCOPE)
        for scheme, prefix in _SCOPE_PREFIX.items():
            if stem.startswith(prefix) and _is_id(identity := stem.removeprefix(prefix)):
                return f"{scheme}://{identity}"
        return None
    if name.startswith(_CRIO):
        identity = name.removeprefix(_CRIO)
        return f"cri-o://{identity}" if _is_id(identity) else None
    return name if _is_id(name) else None


def _is_id(text: str) -> bool:
    """Whether a runtime may have given it to a container. Anybody in a container that may make
    cgroups can choose any other name."""
    return text.isascii() and text.replace("_", "").replace("-", "").isalnum()


def pod_uid_of(name: str) -> str | None:
    """Directory -> pod uid with its dashes; None when it is not a pod's.

    Static pods have a hash without dashes for a uid, which passes unchanged.
    """
    if name.endswith(_SLICE):
        stem, separator, uid = name.removesuffix(_SLICE).rpartition("-pod")
        if not separator or not (stem.endswith(_ROOT_STEMS) or _qos_of_slice(name)):
            return None
        uid = uid.replace("_", "-")
    else:
        uid = name.removeprefix("pod")
        if uid == name:
            return None
    return uid if uid and uid.isascii() and uid.replace("-", "").isalnum() else None


def classify(path: str) -> KubeQoS:
    """Class of a cgroup in a kubepods tree by its path; Guaranteed where no part names one."""
    for part in path.split("/"):
        for qos, name in _QOS_NAME.items():
            if part == name or _qos_of_slice(part) is qos:
                return qos
    return KubeQoS.GUARANTEED


def _qos_of_slice(name: str) -> KubeQoS | None:
    """Of ``kubepods-burstable.slice`` and ``kubepods-burstable-pod<uid>.slice``."""
    if not name.endswith(_SLICE):
        return None
    stem = name.removesuffix(_SLICE)
    for root in _ROOT_STEMS:
        for qos, text in _QOS_NAME.items():
            before, separator, after = stem.partition(f"{root}-{text}")
            if separator and before in ("", before.rstrip("-") + "-"):
                return qos if not after or after.startswith("-pod") else None
    return None


def is_in_system_partition(cgroup: str) -> bool:
    """Return whether it is in kubelet's partition for system pods, or is that."""
    parts = cgroup.split("/")[: _MAX_DEPTH + 1]
    return any(
        is_root_name(root) and Kubepods(root).system.root == f"{root}/{child}"
        for root, child in itertools.pairwise(parts)
    )


def is_root_name(name: str) -> bool:
    """``kubepods``, ``kubepods.slice``, or nested in another slice ``<slice>-kubepods.slice``."""
    if name == "kubepods":
        return True
    return name.endswith(_SLICE) and (name == "kubepods.slice" or name.endswith("-kubepods.slice"))


def is_below_root(cgroup: str) -> bool:
    """Return whether a cgroup is in a tree called like kubelet's, or is one, where ``find``
    looks."""
    return any(map(is_root_name, cgroup.split("/", _MAX_DEPTH)[:_MAX_DEPTH]))


def is_in_pod(cgroup: str) -> bool:
    """Return whether it is the cgroup of a pod, or in one."""
    return any(pod_uid_of(name) is not None for name in cgroup.split("/"))


def is_container(cgroup: str) -> bool:
    """Return whether a runtime made it for a container: by a name that no other cgroup has, or in
    kubelet's tree."""
    name = cgroup.rpartition("/")[2]
    if container_id_of(name) is None:
        return False
    return name.endswith(_SCOPE) or (is_below_root(cgroup) and pod_uid_of(name) is None)


def find(cgroups: Cgroups, root: str = "") -> Kubepods | None:
    """The kubepods tree at depth 1 or 2, or at ``root``; None where there is none (yet)."""
    if root:
        return Kubepods(root) if cgroups.exists(root) else None
    found: list[str] = []
    level: tuple[str, ...] = ("",)
    for _ in range(_MAX_DEPTH):
        level = tuple(child for parent in level for child in cgroups.children(parent))
        found += [path for path in level if is_root_name(posixpath.basename(path))]
    return choose(found, lambda tree: count_pods(tree, cgroups.children))


def choose(
    roots: Iterable[str], pods: Callable[[Kubepods], int], current: str = ""
) -> Kubepods | None:
    """kubelet's tree among those that are called like one; None where there is none.

    The upper one: whoever owns a cgroup can make such names below it, and only root makes one at
    the top. Of two at the same depth the one with more pods (a change of driver leaves the old tree
    behind until the next boot), then systemd's. Below the top, where the other one may be a
    guest's, the ``current`` one stays as long as it has pods.
    """
    trees = [Kubepods(root) for root in roots]
    least = min((tree.root.count("/") for tree in trees), default=0)
    upper = {tree: pods(tree) for tree in trees if tree.root.count("/") == least}
    stays = Kubepods(current)
    if least and upper.get(stays):
        return stays
    return max(upper, key=lambda tree: (upper[tree], tree.driver is Driver.SYSTEMD), default=None)


def count_pods(tree: Kubepods, children: Callable[[str], Iterable[str]]) -> int:
    """``children``: the cgroups directly in one."""
    return sum(
        pod_uid_of(posixpath.basename(child)) is not None
        for part in (tree, tree.system)
        for directory in (part.root, part.burstable, part.besteffort)
        for child in children(directory)
    )


def host_application(
    name: str,
    qos: QoSClass | None,
    *,
    base: str | None = None,
    parent_dir: str = "",
    relative_path: str = "",
    tree: Kubepods | None = None,
) -> str:
    """Cgroup of a ``hostApplications`` entry; ``base`` None: it has no ``cgroupPath``.

    Raises ValueError for an unknown base, for a kubepods base while there is no tree, and where
    the name is missing or the path is that of the root cgroup.
    """
    if not name:
        raise ValueError("a host application needs a name")
    if base is None:
        if qos in (QoSClass.LSE, QoSClass.LSR, QoSClass.LS):
            return f"host-latency-sensitive/{name}"
        return f"host-best-effort/{name}" if qos is QoSClass.BE else name
    if base == "CgroupRoot":
        start = ""
    elif base not in ("Kubepods", "KubepodsBurstable", "KubepodsBesteffort"):
        raise ValueError(
            f"host application {name!r}: cgroupPath.base {base!r} is not one of CgroupRoot, "
            "Kubepods, KubepodsBurstable, KubepodsBesteffort"
        )
    elif tree is None:
        raise ValueError(f"host application {name!r}: base {base} needs a kubepods tree")
    else:
        start = {"Kubepods": tree.root, "KubepodsBurstable": tree.burstable}.get(
            base, tree.besteffort
        )
    parts = (part.strip("/") for part in (start, parent_dir, relative_path))
    cgroup = "/".join(part for part in parts if part)
    if not cgroup:
        raise ValueError(
            f"host application {name!r}: cgroupPath is the root cgroup, which holds everything; "
            "give parentDir or relativePath"
        )
    return cgroup
