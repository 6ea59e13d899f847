"""The pods and applications of this node, merged from all sources."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Application, Fault, Pod
from koordlet.kernel.cgroup.kubepods import is_in_system_partition
from koordlet.state.labels import bounded, read_labels
from koordlet.state.merge import container_key, containers_of, merge_pod
from koordlet.state.pod_table import with_previous
from koordlet.state.source import Source

log = structlog.get_logger()

_Known = tuple[tuple[str, PodFacts], ...]

LABELS_AWAITED_S = 10.0
"""How long a pod may be known by its cgroup alone before its kube class decides."""


class NodeState:
    """Pods merged by uid, containers by id, from ``sources`` in rank order (first wins). One that
    is added later is started by whoever adds it.

    Merging happens when somebody asks after a change; a pod about which nothing changed keeps
    its object, so readers can compare by identity.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.sources = tuple(sources)
        self._on_change = on_change
        self._seen: tuple[tuple[PodFacts, ...], ...] = ()
        self._merged: dict[str, tuple[_Known, Pod | None]] = {}
        self._pods: tuple[Pod, ...] = ()
        self._applications: tuple[Application, ...] = ()
        self._application_lists: tuple[tuple[Application, ...], ...] = ()
        self._shadowed: tuple[Fault, ...] = ()
        self._unlabelled: dict[str, float] = {}
        """Uid of each pod whose labels no source has reported -> since when."""
        self._waited_in_vain: set[str] = set()
        self.awaiting: tuple[Pod, ...] = ()
        """Those of ``pods`` whose labels are awaited."""
        self._on_binding_node = False
        self.faults_total = 0
        """Refused labels and annotations since the start, each once while it stands."""

    def start(self) -> None:
        for source in self.sources:
            source.start(self._on_change)

    def stop(self) -> None:
        for source in self.sources:
            source.stop()

    def rescan(self) -> None:
        for source in self.sources:
            source.rescan()

    def set_binding_node(self, gives_any_pod_cpus: bool) -> None:
        """Whether the scheduler gives CPUs to pods of any class here."""
        if gives_any_pod_cpus is not self._on_binding_node:
            self._on_binding_node = gives_any_pod_cpus
            self._seen = ()

    @property
    def synced(self) -> bool:
        return all(source.synced for source in self.sources)

    def pods(self) -> tuple[Pod, ...]:
        """Sorted by uid. A pod appears once some source knows its cgroup and kube class."""
        seen = tuple(source.pods() for source in self.sources)
        if len(seen) != len(self._seen) or any(
            new is not old for new, old in zip(seen, self._seen, strict=True)
        ):
            self._merge_pods(seen)
            self._seen = seen
        if self._unlabelled or self.awaiting:
            self._wait_for_labels()
        return self._pods

    def asked(self, origin: str, facts: PodFacts) -> Pod | None:
        """The pod that the source ``origin`` asks about, with what all of them know. ``facts``
        are of now, and count also while its cgroup is not there. None: nobody knows its cgroup.
        """
        facts = bounded(facts)
        known = []
        for source in self.sources:
            reported = next((pod for pod in source.pods() if pod.uid == facts.uid), None)
            if source.name == origin:
                reported = _asked(reported, facts)
            if reported is not None:
                known.append((source.name, reported))
        if not any(name == origin for name, _ in known):
            known.append((origin, _asked(None, facts)))
        return _build(tuple(known), self._on_binding_node)

    def applications(self) -> tuple[Application, ...]:
        """By name; of two with the same name the source of the higher rank wins."""
        lists = tuple(source.applications() for source in self.sources)
        if len(lists) != len(self._application_lists) or any(
            new is not old for new, old in zip(lists, self._application_lists, strict=True)
        ):
            self._merge_applications(lists)
            self._application_lists = lists
        return self._applications

    def faults(self) -> tuple[Fault, ...]:
        """Everything refused that still stands: of the sources, the applications, the pods."""
        self.applications()
        return (
            *(fault for source in self.sources for fault in source.faults()),
            *self._shadowed,
            *(fault for pod in self.pods() for fault in pod.faults),
            *map(_never_labelled, (p for p in self._pods if p.uid in self._waited_in_vain)),
        )

    def _merge_pods(self, seen: tuple[tuple[PodFacts, ...], ...]) -> None:
        known: dict[str, list[tuple[str, PodFacts]]] = {}
        for source, pods in zip(self.sources, seen, strict=True):
            for facts in pods:
                known.setdefault(facts.uid, []).append((source.name, facts))
        merged: dict[str, tuple[_Known, Pod | None]] = {}
        for uid in sorted(known):
            key = tuple(known[uid])
            old = self._merged.get(uid)
            if old is not None and old[0] == key and self._is_current(old[1]):
                merged[uid] = old
                continue
            pod = _build(key, self._on_binding_node)
            merged[uid] = (key, pod)
            if pod is not None:
                before = old[1].faults if old is not None and old[1] is not None else ()
                self._count_new_faults(pod, before)
        self._merged = merged
        self._pods = tuple(pod for _, pod in merged.values() if pod is not None)
        now = self._clock()
        self._unlabelled = {
            pod.uid: self._unlabelled.get(pod.uid, now)
            for pod in self._pods
            if pod.origins.keys().isdisjoint(_TOLD_OF_LABELS)
        }
        self._waited_in_vain &= self._unlabelled.keys()

    def _is_current(self, pod: Pod | None) -> bool:
        return pod is None or pod.on_binding_node is self._on_binding_node

    def _wait_for_labels(self) -> None:
        """Marks those pods that a source is about to tell more of."""
        is_reported = any(source.tells_labels for source in self.sources)
        since = self._clock() - LABELS_AWAITED_S
        changed = in_vain = False
        for uid, seen in self._unlabelled.items():
            known, pod = self._merged[uid]
            awaits = is_reported and seen > since
            if pod is None:
                continue
            if is_reported and not awaits and uid not in self._waited_in_vain:
                self._waited_in_vain.add(uid)
                in_vain = True
                log.warning("pod without labels", pod=uid, cgroup=pod.cgroup, qos=pod.qos)
            if pod.awaits_labels == awaits:
                continue
            self._merged[uid] = known, msgspec.structs.replace(pod, awaits_labels=awaits)
            changed = True
        if changed:
            self._pods = tuple(pod for _, pod in self._merged.values() if pod is not None)
        self.awaiting = tuple(pod for pod in self._pods if pod.awaits_labels)
        if in_vain:
            self._on_change()

    def _count_new_faults(self, pod: Pod, before: tuple[Fault, ...]) -> None:
        known = set(before)
        for fault in pod.faults:
            if fault not in known:
                self.faults_total += 1

    def _merge_applications(self, lists: tuple[tuple[Application, ...], ...]) -> None:
        merged: dict[str, Application] = {}
        shadowed = []
        for applications in lists:
            for application in applications:
                first = merged.setdefault(application.name, application)
                if first is not application:
                    shadowed.append(
                        Fault(
                            subject=f"application {application.name}",
                            path=f"{application.origin}.name",
                            message=f"the name is taken by an application of {first.origin}: "
                            "rename one of the two",
                        )
                    )
        self._applications = tuple(merged[name] for name in sorted(merged))
        self._shadowed = tuple(shadowed)


_TOLD_OF_LABELS = ("labels", "annotations")


def _never_labelled(pod: Pod) -> Fault:
    text = (
        f"no source has reported them for {LABELS_AWAITED_S:g} s: the pod is managed by its kube "
        f"class, as {pod.qos}. Look at the container runtime (sources.cri, nri)"
    )
    return Fault(pod.title, "labels", text)


def _asked(old: PodFacts | None, facts: PodFacts) -> PodFacts:
    containers = {container_key(c): c for c in old.containers} if old is not None else {}
    for container in facts.containers:
        key = container_key(container)
        containers[key] = with_previous(container, containers.get(key))
    merged = with_previous(facts, old)
    as_of = facts.as_of
    if as_of is None:
        # What the runtime says again is as old as when it first said it: others may know better.
        again = old is not None and (old.labels, old.annotations) == (
            merged.labels,
            merged.annotations,
        )
        as_of = old.as_of if old is not None and again else math.inf
    return msgspec.structs.replace(merged, containers=tuple(containers.values()), as_of=as_of)


def _build(known: _Known, on_binding_node: bool) -> Pod | None:
    facts, origins = merge_pod(known)
    if facts.cgroup is None or facts.kube_qos is None:
        return None
    read = read_labels(facts, containers_of(facts))
    return Pod(
        uid=facts.uid,
        cgroup=facts.cgroup,
        kube_qos=facts.kube_qos,
        in_system_partition=is_in_system_partition(facts.cgroup),
        containers=read.containers,
        name=facts.name or "",
        namespace=facts.namespace or "",
        raw_qos=read.raw_qos,
        priority=facts.priority,
        priority_class=read.priority_class,
        phase=facts.phase or "",
        labels=facts.labels or {},
        annotations=facts.annotations or {},
        resources=read.resources,
        requested=facts.requested or {},
        pinned_cpus=read.pinned_cpus,
        on_binding_node=on_binding_node,
        host_network=facts.host_network,
        ips=facts.ips or (),
        runtime_handler=facts.runtime_handler or "",
        faults=read.faults,
        origins=origins,
    )
