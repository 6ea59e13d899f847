"""One set of watches into the cluster of the scheduler.

It follows also while another process leads, so that a new leader decides at once. A pod that any
scheduler placed counts from the moment in which the watch shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import structlog

from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.scheduling.shapes import (
    BUDGETS,
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    VOLUME_KIND,
    VOLUMES,
    DisruptionBudget,
    Placed,
    ScheduledPod,
    VolumeClaim,
)
from koord_scheduler.kube.scheduling.sources import Source, reader_of, slot_of
from koord_scheduler.kube.watches import Watched, Watches
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.place.grants import claim_of
from koord_scheduler.plan import node_backoff
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.preemption.budgets import Budget
from koordlet.kube.mirror import Change, Keep, Key
from koordlet.kube.objects import Object

_log = structlog.get_logger()
_DONE = frozenset({"Succeeded", "Failed"})


class Followers(Protocol):
    """Who hears what the feed sees, after the cluster has it."""

    def happened(
        self, event: Event, nodes: Collection[str] = (), others: Collection[PodClass] = ()
    ) -> None:
        """``nodes``: those it is about; none: any. ``others``: the classes of the pods that came or
        went."""
        ...

    def waits(self, pod: Pod, said: tuple[str, str]) -> None:
        """A pod without a node, new or changed. ``said``: reason and message of its condition."""
        ...

    def placed(self, pod: Pod) -> None:
        """A pod has a node, new or changed."""
        ...

    def gone(self, pod: Pod) -> None:
        """A pod does not count any more: it ended, or was deleted."""
        ...


class Feed:
    """``recognise``: the grants that annotations of a pod on a node tell of (`Engine.recognise`).
    Made before the watches begin."""

    def __init__(
        self,
        watches: Watches,
        cluster: Cluster,
        recognise: Callable[[Pod], Mapping[str, Any]],
        followers: Followers,
        sources: Sequence[Source] = (),
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.cluster = cluster
        self._recognise, self.followers, self._wall = recognise, followers, wall
        self.nodes: Watched[Any] = watches.of(NODES, keep=Keep.LEAN)
        """Of `ScheduledNode` or `Node`."""
        self.pods: Watched[Any] = watches.of(PODS, keep=Keep.LEAN)
        """Of `ScheduledPod` or `Pod`: see `shapes.seen`."""
        self.budgets_watched: Watched[DisruptionBudget] = watches.of(BUDGETS, optional=True)
        self._claims: Watched[VolumeClaim] = watches.of(CLAIMS, optional=True)
        self._volumes = watches.of(VOLUME_KIND, optional=True)
        self._budgets: tuple[Budget, ...] | None = None
        self.nodes.listen(self._on_nodes)
        self.pods.listen(self._on_pods)
        self.budgets_watched.listen(self._on_budgets)
        self._claims.listen(self._on_volumes)
        self._volumes.listen(self._on_volumes)
        watches.of(NAMESPACES, optional=True).listen(self._on_namespaces)
        for source in sources:
            watched = watches.of(source.kind, optional=True, keep=Keep.NOTHING)
            watched.listen(_follower(self, source))

    def budgets(self) -> tuple[Budget, ...]:
        """Disruption budgets as they are now."""
        if self._budgets is None:
            self._budgets = tuple(
                Budget(
                    key.namespace,
                    key.name,
                    each.spec.selector,
                    each.status.disruptions_allowed,
                    frozenset(each.status.disrupted_pods),
                )
                for key, each in self.budgets_watched.objects.items()
            )
        return self._budgets

    def pod(self, key: str) -> ScheduledPod | Placed | None:
        item = self.pods.objects.by_text.get(key)
        return shapes.seen(item) if item is not None else None

    # Nodes.

    def _on_nodes(self, changes: tuple[Change[Any], ...]) -> None:
        found: dict[Event, list[str]] = {}
        for change in changes:
            new, old = shapes.node_of(change.new), shapes.node_of(change.old)
            if new is None:
                self.cluster.remove_node(change.key.name)
            elif new != old:
                self.cluster.set_node(new)
                for event in _node_events(old, new):
                    found.setdefault(event, []).append(new.name)
        for event, names in found.items():
            self.followers.happened(event, names)

    # Pods.

    def _on_pods(self, changes: tuple[Change[Any], ...]) -> None:
        left: list[Claim] = []
        came: list[Pod] = []
        changed, now_s = False, self._wall()
        for change in changes:
            new = shapes.seen(change.new) if change.new is not None else None
            old = shapes.seen(change.old) if change.old is not None else None
            if old is not None and (new is None or old.pod.uid != new.pod.uid):
                self._leave(old.pod, left)
            if new is None:
                continue
            pod = new.pod
            if pod.phase in _DONE:
                self._leave(pod, left)
                if new.refusal and pod.node and (old is None or not old.refusal):
                    self._refused(new)
            elif pod.node:
                before = self.cluster.claims.get(pod.key)
                self._take(pod, before, now_s)
                if before is None or not before.pod.node:
                    came.append(pod)
                elif before.pod.labels != pod.labels:
                    changed = True
                if before is not None and _shrank(before.pod, pod):
                    left.append(before)
            elif old is None or old.pod != pod or old.whole != new.whole:
                self.followers.waits(pod, new.whole.said if new.whole is not None else ("", ""))
        if left:
            classes = {claim.pod.cls for claim in left}
            self.followers.happened(Event.POD_GONE, {claim.node for claim in left}, classes)
        if came:
            nodes, classes = {pod.node for pod in came}, {pod.cls for pod in came}
            self.followers.happened(Event.POD_PLACED, nodes, classes)
        if changed:
            self.followers.happened(Event.POD_CHANGED)

    def _take(self, pod: Pod, before: Claim | None, now_s: float) -> None:
        if before is not None and before.pod is pod:
            return
        if before is None or before.node != pod.node or before.pod != pod:
            self.cluster.add(claim_of(pod, before, self._recognise, now_s))
        self.followers.placed(pod)

    def _leave(self, pod: Pod, left: list[Claim]) -> None:
        claim = self.cluster.claims.get(pod.key)
        if claim is not None and claim.pod.uid == pod.uid:
            self.cluster.remove(pod.key)
            left.append(claim)
        self.followers.gone(pod)

    def _refused(self, item: ScheduledPod | Placed) -> None:
        """Only what is told while the watch runs counts: what failed long ago says nothing."""
        if self.pods.synced and node_backoff.is_refusal("Failed", item.refusal):
            until_s = node_backoff.refused(self.cluster, item.pod.node, self._wall())
            _log.info(
                "kubelet refused a pod",
                pod=item.pod.key,
                node=item.pod.node,
                reason=item.refusal,
                left_alone_s=round(until_s - self._wall()),
            )

    # What else decides.

    def _on_namespaces(self, changes: tuple[Change[Object], ...]) -> None:
        """Terms about other pods select namespaces by their labels."""
        known = dict(self.cluster.namespaces)
        for change in changes:
            known.pop(change.key.name, None)
            if change.new is not None and change.new.metadata.labels:
                known[change.key.name] = change.new.metadata.labels
        self.cluster.namespaces = known
        self.followers.happened(Event.POD_CHANGED)

    def _on_budgets(self, _changes: object) -> None:
        self._budgets = None

    def _on_volumes(self, _changes: object) -> None:
        """Few pods that wait have volumes, so all of them are read again."""
        VOLUMES.known = {
            (key.namespace, key.name): shapes.volume_of(
                claim, self._volumes.get(claim.spec.volume_name)
            )
            for key, claim in self._claims.objects.items()
        }
        for each in self.pods.objects.values():
            item = shapes.seen(each)
            if item.whole is None or not item.whole.spec.volumes:
                continue
            pod = shapes.again(item)
            if pod is not None and pod.cls is not item.pod.cls:
                self.followers.waits(pod, item.whole.said)
                self.followers.happened(Event.POD_CHANGED)


def _shrank(before: Pod, pod: Pod) -> bool:
    """Whether a resize left room."""
    old, new = before.cls.requests, pod.cls.requests
    return old is not new and any(new.get(name, 0) < amount for name, amount in old.items())


def _follower(feed: Feed, source: Source) -> Callable[[tuple[Change[Any], ...]], None]:
    slot, read = slot_of(source), reader_of(source)

    def take(changes: tuple[Change[Any], ...]) -> None:
        for change in changes:
            value = read(change.new) if change.new is not None else None
            feed.cluster.put(slot, change.key.name, value)
        feed.followers.happened(source.event, [change.key.name for change in changes])

    return take


def _node_events(old: Node | None, new: Node) -> list[Event]:
    if old is None:
        return [Event.NODE]
    found = []
    if old.allocatable != new.allocatable:
        found.append(Event.NODE_RESOURCES)
    if (
        old.labels != new.labels
        or old.taints != new.taints
        or old.unschedulable != new.unschedulable
        or old.ready != new.ready
    ):
        found.append(Event.NODE_LABELS)
    if old.annotations != new.annotations:
        found.append(Event.TOPOLOGY)
    return found


def key_of(pod: Pod) -> Key:
    return Key(*pod.key.split("/", 1))
