"""The kubepods tree, found and followed by itself.

One hierarchy is watched (``Layout.reference_root``): kubelet and the runtimes make a pod's
directories in all of them. The parent of the tree is watched too, so that a kubepods, or a QoS
directory in it, that appears later is found, and containers of pods that are older than koordlet
are watched like all others (docs/reference/metrics.md D-20).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec
import structlog

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.names import shown
from koordlet.decision.snapshot import Application, Fault
from koordlet.kernel.cgroup.kubepods import (
    INNER,
    Kubepods,
    choose,
    classify,
    container_id_of,
    count_pods,
    is_root_name,
    pod_uid_of,
)
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.watching import Watching

log = structlog.get_logger()

MAX_CONTAINERS = 200
"""Most containers of one pod: its processes may be able to make cgroups beside them."""
_SHOWN = 3


class _Role(Enum):
    """What a watched cgroup is, and so what its children can be."""

    TOP = "top"  # the parent of the search
    UPPER = "upper"  # a child of it, in which the tree may be nested (kubelet's cgroupRoot)
    ROOT = "root"
    PARTITION = "partition"  # kubelet's, for system pods
    QOS = "qos"
    POD = "pod"
    SCOPE = "scope"  # of a container, in which crun makes another cgroup


class KubepodsSource:
    """``parent``: below which cgroup to look, at most two levels deep; empty is the root. ``root``:
    the tree, where its name is known."""

    name = "cgroup-tree"
    error = ""
    tells_labels = False

    def __init__(self, host: Host, layout: Layout, parent: str = "", root: str = "") -> None:
        self._host = host
        self._root = layout.reference_root
        self._parent = parent
        self._wanted = root
        self._found_roots: dict[str, None] = {}
        """Cgroups that are called like a tree. Only the chosen one is looked into."""
        self._chosen = ""
        self._watch = Watching(self.name, host, self._event)
        self._on_change: Callable[[], None] = _nobody
        self._roles: dict[str, _Role] = {}
        self._children: dict[str, set[str]] = {}
        self._facts: dict[str, PodFacts] = {}
        self._changed = self._roots_moved = False
        self._pods: tuple[PodFacts, ...] = ()
        self._crowded: dict[str, int] = {}
        """Pods with more containers than there can be -> how many were left out."""
        self._parent_missing = False
        self.synced = False

    def start(self, on_change: Callable[[], None]) -> None:
        """A ``parent`` that is not there yet is looked for at each rescan; until then this
        source is not synced."""
        self._on_change = on_change
        self._enter(self._parent, _Role.TOP)
        self._choose()
        self._finish()

    def stop(self) -> None:
        self._watch.close()

    def rescan(self) -> None:
        self._list(self._parent)
        self._choose()
        self._finish()

    def pods(self) -> tuple[PodFacts, ...]:
        return self._pods

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        crowded = (
            Fault(
                f"pod {self._facts[pod].uid}",
                shown(pod),
                f"{count} more cgroups than the {MAX_CONTAINERS} containers that a pod may have "
                "here are left out",
            )
            for pod, count in self._crowded.items()
        )
        return (*self._watch.faults(), *crowded)

    def tree(self) -> Kubepods | None:
        """kubelet's, see ``kernel.cgroup.kubepods.choose``."""
        return Kubepods(self._chosen) if self._chosen else None

    @property
    def problem(self) -> str:
        """Which cgroups look like a second tree, and what to do where one of them is the first."""
        others = [root for root in self._found_roots if root != self._chosen]
        if not self._chosen.count("/"):
            # A change of driver leaves the old tree behind, empty, until the next boot.
            others = [r for r in others if r.count("/") or count_pods(Kubepods(r), self._below)]
        if self._wanted or not others:
            return ""
        names = ", ".join(map(shown, others[:_SHOWN])) + (" ..." if len(others) > _SHOWN else "")
        return (
            f"{shown(self._chosen)} counts as the cgroup of kubelet's pods; {names}, which is "
            "called like one too, is left alone. Set sources.kubepods_root to kubelet's own"
        )

    def _choose(self) -> None:
        """Enter the tree that counts, and leave the one that did."""
        self._roots_moved = False
        if self._wanted:
            best = self._wanted if self._wanted in self._found_roots else ""
        else:
            tree = choose(
                self._found_roots, lambda each: count_pods(each, self._below), self._chosen
            )
            best = tree.root if tree is not None else ""
        if best == self._chosen:
            return
        before, self._chosen = self._chosen, best
        if before and before in self._roles:
            self._leave(before)
        if best:
            log.info("kubepods tree", cgroup=best)
            self._enter(best, _Role.ROOT)
        self._changed = True

    def _below(self, cgroup: str) -> list[str]:
        try:
            return self._host.subdirs(self._path(cgroup))
        except OSError:
            return []

    def _event(self, directory: str, child: str) -> None:
        cgroup = directory[len(self._root) :].strip("/")
        if cgroup not in self._roles:
            return
        if child:
            self._look_at(cgroup, child)
        else:  # events were lost
            self._list(cgroup)
        if self._roots_moved:
            self._choose()
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
            if self._roles[cgroup] is _Role.SCOPE and child == INNER:
                self._know_inner(cgroup, None)

    def _found(self, cgroup: str, child: str) -> None:
        """A directory ``child`` is in ``cgroup``; known ones are entered again, because it may
        be a new directory under an old name."""
        role = self._roles[cgroup]
        path = _join(cgroup, child)
        if role in (_Role.TOP, _Role.UPPER):
            if path == self._wanted if self._wanted else is_root_name(child):
                self._is_root(path)
            elif self._wanted.startswith(path + "/") if self._wanted else role is _Role.TOP:
                self._enter(path, _Role.UPPER)
        elif role is _Role.POD:
            self._add_container(cgroup, path, child)
        elif role is _Role.SCOPE:
            if child == INNER:
                self._know_inner(cgroup, path)
        elif (uid := pod_uid_of(child)) is not None:
            if path not in self._facts:
                self._facts[path] = PodFacts(uid=uid, cgroup=path, kube_qos=classify(path))
                self._changed = True
            self._enter(path, _Role.POD)
        elif role in (_Role.ROOT, _Role.PARTITION):
            tree = Kubepods(cgroup)
            if path in (tree.burstable, tree.besteffort):
                self._enter(path, _Role.QOS)
            elif path == tree.system.root and role is _Role.ROOT:
                self._enter(path, _Role.PARTITION)

    def _is_root(self, path: str) -> None:
        self._children.setdefault(path.rpartition("/")[0], set()).add(path)
        if path not in self._found_roots:
            self._found_roots[path] = None
            self._roots_moved = True
        elif path == self._chosen:
            self._enter(path, _Role.ROOT)

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
            self._list_containers(cgroup, names)
            return
        if self._roles[cgroup] is _Role.SCOPE:
            self._know_inner(cgroup, _join(cgroup, INNER) if INNER in names else None)
            return
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
        known = self._facts[pod].containers
        if container is None:
            return
        if not any(each.cgroup == path for each in known):
            if len(known) >= MAX_CONTAINERS:
                self._crowded[pod] = self._crowded.get(pod, 0) + 1
                return
            self._set_containers(pod, (*known, ContainerFacts(id=container, cgroup=path)))
        self._enter_scope(path)

    def _list_containers(self, pod: str, names: list[str]) -> None:
        """Those that were known stay in their order; others follow."""
        found = {_join(pod, name): each for name in names if (each := container_id_of(name))}
        known = self._facts[pod].containers
        kept = [each for each in known if each.cgroup in found]
        there = {each.cgroup for each in kept}
        new = [ContainerFacts(id=c, cgroup=p) for p, c in found.items() if p not in there]
        every = (*kept, *new)
        self._crowded.pop(pod, None)
        if len(every) > MAX_CONTAINERS:
            self._crowded[pod] = len(every) - MAX_CONTAINERS
        if every[:MAX_CONTAINERS] != known:
            self._set_containers(pod, every[:MAX_CONTAINERS])
        for container in every[:MAX_CONTAINERS]:
            self._enter_scope(container.cgroup or "")

    def _enter_scope(self, cgroup: str) -> None:
        """Look for what crun makes in it, which may be made a moment later."""
        if cgroup.endswith(".scope"):
            self._enter(cgroup, _Role.SCOPE)

    def _know_inner(self, scope: str, inner: str | None) -> None:
        pod = scope.rpartition("/")[0]
        known = self._facts[pod].containers if pod in self._facts else ()
        told = tuple(
            msgspec.structs.replace(each, inner=inner) if each.cgroup == scope else each
            for each in known
        )
        if told != known:
            self._set_containers(pod, told)

    def _set_containers(self, pod: str, containers: tuple[ContainerFacts, ...]) -> None:
        self._facts[pod] = msgspec.structs.replace(self._facts[pod], containers=containers)
        self._changed = True

    def _drop(self, cgroup: str) -> None:
        """Forget a cgroup that is gone."""
        if cgroup in self._found_roots:
            del self._found_roots[cgroup]
            self._roots_moved = True
        self._leave(cgroup)
        self._children.get(cgroup.rpartition("/")[0], set()).discard(cgroup)

    def _leave(self, cgroup: str) -> None:
        """Follow it no longer, and nothing below it."""
        for child in tuple(self._children.pop(cgroup, ())):
            self._drop(child)
        parent = cgroup.rpartition("/")[0]
        self._crowded.pop(cgroup, None)
        role = self._roles.pop(cgroup, None)
        if role is not None:
            self._watch.remove(self._path(cgroup))
            # Groups beside the tree come and go all the time (services, sessions).
            self._changed |= role not in {_Role.UPPER, _Role.SCOPE}
        if self._facts.pop(cgroup, None) is not None:
            self._changed = True
        elif parent in self._facts:
            kept = tuple(c for c in self._facts[parent].containers if c.cgroup != cgroup)
            if len(kept) != len(self._facts[parent].containers):
                self._set_containers(parent, kept)


def _join(cgroup: str, child: str) -> str:
    return f"{cgroup}/{child}" if cgroup else child


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
