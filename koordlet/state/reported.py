"""Pods that a runtime reports, one at a time: containerd through NRI, a proxy through the hook
API."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Application, Fault
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.labels import bounded
from koordlet.state.merge import bare_id, container_key
from koordlet.state.pod_table import PodTable, with_previous
from koordlet.state.reported_file import ReportedFile

GRACE_S = 60.0
"""How long a pod or container is remembered whose cgroup was not there yet."""


class ReportedSource:
    """``name`` is the origin of its fields: ``nri``, ``hooks``.

    What is reported stays until it is taken back, or its cgroup goes; where the cgroup is not
    there yet or nobody names it, until ``GRACE_S`` after the last report. A container that has
    no id yet stays under its name until one with that name has.

    ``awaited_s``: a complete list is expected (``replace``), and the source is not synced before
    it came or this time after the start has passed. ``lists``: whether one ever comes. ``file``
    keeps what is reported over a restart.
    """

    def __init__(
        self,
        name: str,
        host: Host,
        layout: Layout,
        *,
        awaited_s: float = 0.0,
        lists: bool = True,
        file: ReportedFile[PodFacts] | None = None,
    ) -> None:
        self.name = name
        self.error = ""
        self._file = file
        self._host = host
        self._table = PodTable(name, host, layout, on_move=self._settle, on_change=self._changed)
        self._on_change: Callable[[], None] = _nobody
        self._awaited_s = awaited_s
        self._lists = lists
        self._started_s = host.monotonic()
        self._replaced = False
        self._reported_s: dict[str, float] = {}
        """Pod uid or key of a container -> when it was last reported, until its cgroup was seen."""

    @property
    def synced(self) -> bool:
        return self._replaced or self._host.monotonic() - self._started_s >= self._awaited_s

    @property
    def tells_labels(self) -> bool:
        """For a source that lists everything: once it has, or is about to."""
        return not self._lists or self._replaced or not self.synced

    def start(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._started_s = self._host.monotonic()
        if self._file is not None:
            known = self._file.load()
            for pod in known:
                self._upsert(pod)
            self._settle({pod.uid for pod in known})

    def stop(self) -> None:
        self._table.close()
        if self._file is not None:
            self._file.close()

    def rescan(self) -> None:
        self._table.rescan()
        self._settle(self._table.uids())

    def pods(self) -> tuple[PodFacts, ...]:
        return self._table.published()

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        wrong = (self._file.error, self._file.damage) if self._file is not None else ()
        found = (Fault(f"source {self.name}", "", each) for each in wrong if each)
        return (*found, *self._table.faults())

    def upsert(
        self, pod: PodFacts, container: ContainerFacts | None = None, *, is_resized: bool = False
    ) -> PodFacts:
        """What ``pod`` and ``container``, which is one of its own, leave open stays as it was
        reported before; so do containers that are not listed.

        Returns all that was reported of the pod. ``as_of`` None: its labels and annotations are of
        now, or of when they were first reported as they are. A container without an id is yet to
        be created; one that has neither id nor name is not remembered. ``is_resized``: what was
        asked for the pod as a whole is news.
        """
        if container is not None:
            pod = msgspec.structs.replace(pod, containers=(*pod.containers, container))
        reported = self._upsert(pod, is_resized=is_resized)
        self._settle({pod.uid})
        return reported

    def replace(self, pods: Iterable[PodFacts]) -> None:
        """From now on exactly these pods and containers."""
        listed = {pod.uid: pod for pod in pods}
        before = self._table.uids()
        for uid in before - listed.keys():
            self._forget(uid)
        for pod in listed.values():
            self._keep(pod.uid, {container_key(container) for container in pod.containers})
            self._upsert(pod)
        self._replaced = True
        self._settle(set(listed) | before)

    def remove_pod(self, uid: str) -> None:
        self._forget(uid)
        self._settle({uid})

    def remove_container(self, pod_uid: str, container_id: str) -> None:
        pod = self._table.get(pod_uid)
        if pod is not None:
            self._keep(
                pod_uid, {container_key(c) for c in pod.containers} - {bare_id(container_id)}
            )
            self._settle({pod_uid})

    def _upsert(self, pod: PodFacts, *, is_resized: bool = False) -> PodFacts:
        pod = bounded(pod)
        now_s = self._host.monotonic()
        old = self._table.get(pod.uid)
        if old is not None and self._lists and not is_resized and _sandbox(pod) == _sandbox(old):
            # After a resize a runtime goes on telling what it was created with (containerd 2.4).
            pod = msgspec.structs.replace(pod, requested=old.requested or pod.requested)
        containers = {container_key(c): c for c in old.containers} if old is not None else {}
        self._reported_s[pod.uid] = now_s
        for container in pod.containers:
            key = container_key(container)
            if not container.id:
                # Created anew: what was asked for under this name before does not count.
                if container.name:
                    containers[key] = container
                continue
            containers[key] = _container(containers.get(key), container)
            containers.pop(container_key(ContainerFacts("", name=container.name)), None)
            self._reported_s[key] = now_s
        merged = with_previous(pod, old)
        if pod.as_of is None and (old is None or _labels_differ(old, merged)):
            merged = msgspec.structs.replace(merged, as_of=now_s)
        merged = msgspec.structs.replace(
            merged, containers=tuple(containers[key] for key in sorted(containers))
        )
        self._table.put(merged)
        return merged

    def _keep(self, uid: str, keys: set[str]) -> None:
        """Keep these of the pod's containers."""
        pod = self._table.get(uid)
        if pod is None:
            return
        kept = tuple(c for c in pod.containers if container_key(c) in keys)
        for gone in {container_key(c) for c in pod.containers} - keys:
            self._reported_s.pop(gone, None)
        if len(kept) != len(pod.containers):
            self._table.put(msgspec.structs.replace(pod, containers=kept))

    def _forget(self, uid: str) -> None:
        self._keep(uid, set())
        self._reported_s.pop(uid, None)
        self._table.drop(uid)

    def _settle(self, uids: set[str]) -> None:
        """Forgets of these pods what went, and publishes the rest."""
        for uid in uids:
            pod = self._table.get(uid)
            if pod is None:
                continue
            if self._stale(uid, pod.cgroup):
                self._forget(uid)
            else:
                containers = ((container_key(c), c) for c in pod.containers)
                self._keep(
                    uid,
                    {key for key, c in containers if not c.id or not self._stale(key, c.cgroup)},
                )
        if self._file is not None:
            self._file.save(self._table.facts(), uids)
        self._table.publish()

    def _stale(self, key: str, cgroup: str | None) -> bool:
        if cgroup is not None and self._table.present(cgroup):
            self._reported_s.pop(key, None)
            return False
        # Without an entry its cgroup was there when it was last looked for.
        reported_s = self._reported_s.get(key)
        return reported_s is None or self._host.monotonic() - reported_s > GRACE_S

    def _changed(self) -> None:
        self._on_change()


def _container(old: ContainerFacts | None, new: ContainerFacts) -> ContainerFacts:
    """What kubelet asks for in an update adds to what it asked for before."""
    merged = with_previous(new, old)
    if old is None:
        return merged
    if old.requested and new.requested:
        merged = msgspec.structs.replace(merged, requested={**old.requested, **new.requested})
    return merged if "://" in new.id else msgspec.structs.replace(merged, id=old.id)


def _sandbox(pod: PodFacts) -> str:
    """Return the id of its sandbox, empty where it is not told."""
    return next((bare_id(each.id) for each in pod.containers if each.is_sandbox), "")


def _labels_differ(old: PodFacts, new: PodFacts) -> bool:
    return (old.labels, old.annotations) != (new.labels, new.annotations)


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
