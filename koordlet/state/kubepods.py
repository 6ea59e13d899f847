"""The kubepods tree, found and followed by itself.

One hierarchy is watched (``Layout.reference_root``): kubelet and the runtimes make a pod's
directories in all of them. The parent of the tree is watched too, so that a kubepods, or a QoS
directory in it, that appears later is found, and containers of pods that are older than koordlet
are watched like all others (spec/metrics.md D-20).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec
import structlog

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Application, Fault
from koordlet.kernel.host import Host
from koordlet.kernel.kubepods import (
    Driver,
    Kubepods,
    classify,
    container_id_of,
    is_root_name,
    pod_uid_of,
)
from koordlet.kernel.layout import Layout
from koordlet.state.watching import Watching

log = structlog.get_logger()


class _Role(Enum):
    """What a watched cgroup is, and so what its children can be."""

    TOP = "top"  # the parent of the search
    UPPER = "upper"  # a child of it, in which the tree may be nested (kubelet's cgroupRoot)
    ROOT = "root"
    QOS = "qos"
    POD = "pod"


class KubepodsSource:
    """``parent``: below which cgroup to look, at most two levels deep; empty is the root."""

    name = "cgroup-tree"

    def __init__(self, host: Host, layout: Layout, parent: str = "") -> None:
        self._host = host
        self._root = layout.reference_root
        self._parent = parent
        self._watch = Watching(self.name, host, self._event)
        self._on_change: Callable[[], None] = _nobody
        self._roles: dict[str, _Role] = {}
        self._children: dict[str, set[str]] = {}
        self._facts: dict[str, PodFacts] = {}
        self._changed = False
        self._pods: tuple[PodFacts, ...] = ()
        self._parent_missing = False
        self.synced = False

    def start(self, on_change: Callable[[], None]) -> None:
        """A ``parent`` that is not there yet is looked for at each rescan; until then this
        source is not synced."""
        self._on_change = on_change
        self._enter(self._parent, _Role.TOP)
        self._finish()

    def stop(self) -> None:
        self._watch.close()

    def rescan(self) -> None:
        self._list(self._parent)
        self._finish()

    def pods(self) -> tuple[PodFacts, ...]:
        return self._pods

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        return self._watch.faults()

    def tree(self) -> Kubepods | None:
        """The tree that holds the pods; a change of driver leaves the old one behind until the
        next boot. Of two alike that of the systemd driver."""
        trees = [Kubepods(c) for c, role in self._roles.items() if role is _Role.ROOT]
        return max(
            trees,
            key=lambda tree: (
                sum(cgroup.startswith(tree.root + "/") for cgroup in self._facts),
                tree.driver is Driver.SYSTEMD,
            ),
            default=None,
        )

    def _event(self, directory: str, child: str) -> None:
        cgroup = directory[len(self._root) :].strip("/")
        if cgroup not in self._roles:
            return
        if child:
            self._look_at(cgroup, child)
        else:  # events were lost
            self._list(cgroup)
        self._finish()

    def _finish(self) -> None:
        if self._changed:
            self._changed = False
            self._pods = tuple(self._facts[cgroup] for cgroup in sorted(self._facts))
            self._on_change()

    def _path(self, cgroup: str) -> str:
        return f"{self._root}/{cgroup}" if cgroup else self._root

    def _look_at(self, cgroup: str, child: str) -> None:
        path = _join(cgroup, child)
        if self._host.exists(self._path(path)):
            self._found(cgroup, child)
        else:
            self._drop(path)

    def _found(self, cgroup: str, child: str) -> None:
        """A directory ``child`` is in ``cgroup``; known ones are entered again, because it may
        be a new directory under an old name."""
        role = self._roles[cgroup]
        path = _join(cgroup, child)
        if role in (_Role.TOP, _Role.UPPER):
            if is_root_name(child):
                self._enter(path, _Role.ROOT)
            elif role is _Role.TOP:
                self._enter(path, _Role.UPPER)
        elif role is _Role.POD:
            self._add_container(cgroup, path, child)
        elif (uid := pod_uid_of(child)) is not None:
            if path not in self._facts:
                self._facts[path] = PodFacts(uid=uid, cgroup=path, kube_qos=classify(path))
                self._changed = True
            self._enter(path, _Role.POD)
        elif role is _Role.ROOT and path in (
            Kubepods(cgroup).burstable,
            Kubepods(cgroup).besteffort,
        ):
            self._enter(path, _Role.QOS)

    def _enter(self, cgroup: str, role: _Role) -> None:
        """Watches, then lists: what was made before the watch was armed is found by listing."""
        self._roles[cgroup] = role
        if role is not _Role.TOP:
            self._children.setdefault(cgroup.rpartition("/")[0], set()).add(cgroup)
        self._list(cgroup)

    def _list(self, cgroup: str) -> None:
        try:
            self._watch.add(self._path(cgroup))
            names = self._host.subdirs(self._path(cgroup))
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("cgroup cannot be listed", cgroup=cgroup, error=str(error))
            if cgroup == self._parent:
                self._lose_parent(str(error))
            else:
                self._drop(cgroup)
            return
        if cgroup == self._parent:
            self.synced = True
        present = {_join(cgroup, name) for name in names}
        for gone in self._children.get(cgroup, set()) - present:
            self._drop(gone)
        if self._roles[cgroup] is _Role.POD:
            self._keep_containers(cgroup, present)
        for name in names:
            self._found(cgroup, name)

    def _lose_parent(self, error: str) -> None:
        if self.synced or not self._parent_missing:
            log.warning("no cgroup to look for kubepods in", cgroup=self._parent, error=error)
        self._parent_missing = True
        self.synced = False
        for child in tuple(self._children.get(self._parent, ())):
            self._drop(child)

    def _add_container(self, pod: str, path: str, name: str) -> None:
        container = container_id_of(name)
        facts = self._facts[pod]
        if container is not None and all(known.cgroup != path for known in facts.containers):
            self._set_containers(
                pod, (*facts.containers, ContainerFacts(id=container, cgroup=path))
            )

    def _keep_containers(self, pod: str, present: set[str]) -> None:
        kept = tuple(c for c in self._facts[pod].containers if c.cgroup in present)
        if len(kept) != len(self._facts[pod].containers):
            self._set_containers(pod, kept)

    def _set_containers(self, pod: str, containers: tuple[ContainerFacts, ...]) -> None:
        self._facts[pod] = msgspec.structs.replace(self._facts[pod], containers=containers)
        self._changed = True

    def _drop(self, cgroup: str) -> None:
        for child in tuple(self._children.pop(cgroup, ())):
            self._drop(child)
        parent = cgroup.rpartition("/")[0]
        self._children.get(parent, set()).discard(cgroup)
        role = self._roles.pop(cgroup, None)
        if role is not None:
            self._watch.remove(self._path(cgroup))
            # Groups beside the tree come and go all the time (services, sessions): no news.
            self._changed |= role is not _Role.UPPER
        if self._facts.pop(cgroup, None) is not None:
            self._changed = True
        elif parent in self._facts and role is None:
            kept = tuple(c for c in self._facts[parent].containers if c.cgroup != cgroup)
            if len(kept) != len(self._facts[parent].containers):
                self._set_containers(parent, kept)


def _join(cgroup: str, child: str) -> str:
    return f"{cgroup}/{child}" if cgroup else child


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
