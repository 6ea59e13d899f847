"""A cluster with all that decides about its pods: for the commands, which ask without a daemon."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koord_scheduler.model.annotations import GIVEN
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.grants import claim_of
from koord_scheduler.place.reservation.reading import read_operating_pod
from koord_scheduler.place.reservation.reservation import (
    AVAILABLE,
    RESERVATIONS,
    WAITING,
    Reservation,
)
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.network import Network
from koord_scheduler.plan.parts import Parts
from koord_scheduler.plan.preemption.budgets import Budget
from koord_scheduler.plan.profile import Profile
from koord_scheduler.share.gang.book import bind_annotations
from koordlet.protocol.selector import matches

DONE = frozenset({"Succeeded", "Failed"})


class State:
    """``waiting``: pods without a node that the profiles are for; ``others``: those of other
    schedulers; both by key. Raises ProfileError or ArgumentError."""

    def __init__(self, profiles: tuple[Profile, ...]) -> None:
        self.cluster = Cluster()
        self.parts = Parts(self.cluster, profiles)
        self.network = Network(self.cluster)
        self.waiting: dict[str, Pod] = {}
        self.others: dict[str, Pod] = {}
        self.budgets: dict[tuple[str, str], Budget] = {}
        self.reservations: dict[str, Reservation] = {}
        """By name; those that are over are left out."""

    def tick(self, now_s: float) -> None:
        """It is ``now_s`` (Unix time)."""
        for engine in self.parts.engines.values():
            engine.tick(now_s)

    def engine(self, pod: Pod) -> Engine:
        """Of the profile that the pod asks for, else the first one."""
        return self.parts.engines.get(pod.scheduler, self.parts.first)

    def put(self, pod: Pod, *, adopt: bool = False) -> None:
        """A pod, new or changed. ``adopt``: it is decided for here, whichever scheduler it
        names."""
        if pod.phase in DONE:
            self.drop(pod.key)
        elif pod.node:
            self._runs(pod)
        else:
            self._waits(pod, adopt)

    def drop(self, key: str) -> None:
        """The pod is gone, or has ended."""
        claim = self.cluster.remove(key)
        pod = claim.pod if claim is not None else self._not_waiting(key)
        if pod is None:
            return
        if self.reservations.pop(key, None) is not None:
            self._show(pod.node)
        if self.parts.gangs is not None and pod.gang:
            self.parts.gangs.remove_pod(pod)
        if self.parts.quotas is not None:
            self.parts.quotas.forget(key)

    def reserve(self, new: Reservation) -> None:
        """A Reservation, new or changed."""
        old = self.reservations.get(new.name)
        if old is not None and old.uid != new.uid:
            self.unreserve(new.name)
        self.reservations[new.name] = new
        if new.available:
            self.cluster.put(WAITING, new.name, None)
            self._show(new.node)
            self.put(msgspec.structs.replace(new.pod, node=new.node))
        elif new.node or new.phase in DONE:
            self.unreserve(new.name)
        else:
            self.cluster.put(WAITING, new.name, new)
            self.put(new.pod)
        if old is not None and old.node != new.node:
            self._show(old.node)

    def unreserve(self, name: str) -> None:
        """It is gone, or over."""
        old = self.reservations.pop(name, None)
        if old is not None:
            self.cluster.put(WAITING, name, None)
            self._show(old.node)
            self.drop(old.pod.key)

    def _show(self, node: str) -> None:
        there = {
            each.name: each
            for each in self.reservations.values()
            if each.node == node and each.available
        }
        if node:
            self.cluster.put(RESERVATIONS, node, there or None)

    def pod(self, key: str) -> Pod | None:
        claim = self.cluster.claims.get(key)
        if claim is not None:
            return claim.pod
        return self.waiting.get(key) or self.others.get(key)

    def again(self, key: str) -> None:
        """A pod that has a node waits for one again, as if it had just been made."""
        claim = self.cluster.claims.get(key)
        if claim is not None:
            self.drop(key)
            self.put(bare(claim.pod), adopt=True)

    def ours(self) -> list[str]:
        """Keys of running pods that the profiles would decide for, the oldest first. Pods of
        DaemonSets have no choice, and those that go anyway need none."""
        found = [
            claim.pod
            for claim in self.cluster.claims.values()
            if claim.pod.scheduler in self.parts.engines
            and not (claim.pod.cls.daemon or claim.pod.terminating or claim.pod.holds)
        ]
        found.sort(key=lambda pod: (pod.created_s, pod.key))
        return [pod.key for pod in found]

    def spend(self, victims: Iterable[Pod]) -> None:
        """Their evictions count in the budgets."""
        for victim in victims:
            namespace, _, name = victim.key.partition("/")
            for key, each in self.budgets.items():
                if each.namespace != namespace or each.selector is None:
                    continue
                if name not in each.disrupted and matches(each.selector, victim.labels):
                    self.budgets[key] = each._replace(
                        allowed=each.allowed - 1, disrupted=each.disrupted | {name}
                    )

    def _runs(self, pod: Pod) -> None:
        self._not_waiting(pod.key)
        for engine in self.parts.engines.values():
            engine.forget(pod.key)
        before = self.cluster.claims.get(pod.key)
        recognise = self.parts.first.recognise
        self.cluster.add(claim_of(pod, before, recognise, pod.created_s))
        if (found := read_operating_pod(pod)) is not None:
            self.reservations[pod.key] = found
            self._show(pod.node)
        held = self.reservations.get(pod.holds) if pod.holds else None
        if held is not None and not held.available:
            self.reservations[pod.holds] = msgspec.structs.replace(
                held, node=pod.node, phase=AVAILABLE, allocatable=dict(pod.cls.requests)
            )
            self.cluster.put(WAITING, pod.holds, None)
            self._show(pod.node)
        if self.parts.gangs is not None and pod.gang:
            self.parts.gangs.set_pod(pod)

    def _waits(self, pod: Pod, adopt: bool) -> None:
        self.cluster.remove(pod.key)
        ours = adopt or pod.scheduler in self.parts.engines
        (self.waiting if ours else self.others)[pod.key] = pod
        for engine in (self.engine(pod),) if ours else self.parts.engines.values():
            if pod.nominated:
                engine.nominate(pod, pod.nominated)
        if not ours:
            return
        if self.parts.quotas is not None:
            self.parts.quotas.wait(pod)
        if self.parts.gangs is not None and pod.gang:
            self.parts.gangs.set_pod(pod)

    def _not_waiting(self, key: str) -> Pod | None:
        return self.waiting.pop(key, None) or self.others.pop(key, None)


def bare(pod: Pod) -> Pod:
    """The pod as its workload would make it again, with nothing of where it was."""
    kept = {k: v for k, v in pod.annotations.items() if k not in _RESULTS}
    return msgspec.structs.replace(
        pod,
        node="",
        phase="Pending",
        ready=False,
        terminating=False,
        nominated="",
        annotations=kept,
        scheduled_s=0.0,
        initialized_s=0.0,
    )


_RESULTS = frozenset((*GIVEN, *bind_annotations("", 2)))
"""What a scheduler wrote when it bound the pod."""
