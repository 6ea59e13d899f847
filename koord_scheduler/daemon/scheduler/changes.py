"""What the feed tells of changes the queue: who waits, who went, and whom it may help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from koord_scheduler.daemon.scheduler.auditor import Outcome
from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.scheduling.conditions import UNSCHEDULABLE, Said
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.plan import gangs
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.queue import Unit

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.scheduler import Scheduler

GATED_S = 5.0
"""A gang that lacks members for so long says so."""
_LOCAL = frozenset({Event.LOAD, Event.DEVICES, Event.TOPOLOGY})
"""Events that come all the time, and open no other node than theirs."""
_CLOSER = _LOCAL | {Event.POD_PLACED, Event.POD_GONE, Event.QUOTA}
"""Events after which it is asked whether they help a unit."""
_MOST_KINDS = 16
"""Kinds of members of a gang that are asked about."""


class Changes:
    """The `Followers` of the feed, and of Reservations and gangs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._groups: dict[str, bool] = {}
        """Gang groups to look at before the next decision, and whether what changed may help
        them."""
        self._gated: dict[str, float] = {}
        """Gang groups that lack members, and since when, or when it was told last."""

    def begin(self) -> None:
        """This process leads: all that wait come into the queue."""
        self._groups, self._gated = {}, {}
        for pod in tuple(self._scheduler.waiting.values()):
            self._enqueue(pod)

    # What came about.

    def happened(
        self, event: Event, nodes: Collection[str] = (), others: Collection[PodClass] = ()
    ) -> None:
        scheduler = self._scheduler
        if not scheduler.leading:
            return
        helped: Callable[[Unit, frozenset[str]], bool] | None = None
        if event in _CLOSER and (nodes or event is Event.QUOTA):
            row = scheduler.cluster.row
            rows = np.array([row[n] for n in nodes if n in row], np.intp)
            if event in _LOCAL and not len(rows):
                return

            def helped(unit: Unit, refused_by: frozenset[str]) -> bool:
                members = _members(unit, scheduler.waiting)
                return not members or any(
                    (engine := scheduler.parts.engines.get(pod.scheduler)) is None
                    or engine.helped(pod, refused_by, event, rows, others)
                    for pod in members
                )

        if scheduler.queue.event(event, scheduler.now_s(), helped):
            scheduler.wake()

    def waits(self, pod: Pod, said: tuple[str, str]) -> None:
        scheduler = self._scheduler
        if pod.scheduler not in scheduler.parts.engines:
            self._not_ours(pod)
            return
        placement = scheduler.assumed.get(pod.key)
        if placement is not None and placement.pod.uid == pod.uid:
            return
        scheduler.conditions.learn(pod.key, *said)
        before = scheduler.waiting.get(pod.key)
        scheduler.waiting[pod.key] = pod
        if before is not None and before.gang != pod.gang:
            self._changed_gang(before)
        engine = scheduler.parts.engines[pod.scheduler]
        if pod.nominated and engine.nomination(pod) == pod.nominated:
            engine.nominate(pod, pod.nominated)
        elif before is not None and before.nominated and not pod.nominated:
            self._not_nominated(pod.key, before.nominated)
        if scheduler.parts.quotas is not None and not pod.holds:
            scheduler.parts.quotas.wait(pod)
        if scheduler.parts.gangs is not None and pod.gang:
            scheduler.parts.gangs.set_pod(pod)
        if scheduler.leading and (before != pod or not self._queued(pod)):
            helped = before is not None and _differs(before, pod)
            self._enqueue(pod, helped=helped)
            if helped:
                scheduler.queue.wake(pod.key, scheduler.now_s())
            scheduler.wake()

    def _not_nominated(self, key: str, node: str) -> None:
        """Its status does not name the node any more."""
        for engine in self._scheduler.parts.engines.values():
            if engine.nominated_to(key) == node:
                engine.forget(key)
                self.happened(Event.POD_GONE, (node,))

    def _queued(self, pod: Pod) -> bool:
        """Whether its unit is in the queue already; a change of what is said of it changes
        nothing."""
        book = self._scheduler.parts.gangs
        if book is None or not pod.gang:
            return pod.key in self._scheduler.queue
        return gangs.UNIT + book.group_of(pod.gang) in self._scheduler.queue

    def _not_ours(self, pod: Pod) -> None:
        scheduler = self._scheduler
        before = ""
        for engine in scheduler.parts.engines.values():
            before = engine.nominated_to(pod.key)
            engine.forget(pod.key)
            if pod.nominated:
                engine.nominate(pod, pod.nominated)
        if before and before != pod.nominated:
            self.happened(Event.POD_GONE, (before,))
        if scheduler.waiting.pop(pod.key, None) is not None:
            self._forget(pod)
            self._audit_end(pod.key, Outcome.DELETED)

    def _changed_gang(self, before: Pod) -> None:
        """It is another unit from now on."""
        scheduler = self._scheduler
        scheduler.queue.remove(before.key)
        self._audit_end(before.key, Outcome.DELETED)
        if scheduler.parts.gangs is not None and before.gang:
            self._group_changed(scheduler.parts.gangs.remove_pod(before))

    def placed(self, pod: Pod) -> None:
        scheduler = self._scheduler
        scheduler.assumed.pop(pod.key, None)
        waited = scheduler.waiting.pop(pod.key, None)
        if waited is not None:
            self._forget(pod)
            self._audit_end(pod.key, Outcome.SCHEDULED)
            if waited.gang != pod.gang:
                self._changed_gang(waited)
        else:
            for engine in scheduler.parts.engines.values():  # another scheduler's nomination
                engine.forget(pod.key)
        if scheduler.parts.gangs is not None and pod.gang:
            self._group_changed(scheduler.parts.gangs.set_pod(pod))
        if scheduler.reservations is not None and not pod.holds:
            scheduler.reservations.pod_changed(pod)

    def gone(self, pod: Pod) -> None:
        scheduler = self._scheduler
        if scheduler.reservations is not None and not pod.holds:
            scheduler.reservations.pod_changed(pod, gone=True)
        scheduler.assumed.pop(pod.key, None)
        scheduler.waiting.pop(pod.key, None)
        self._forget(pod)
        if scheduler.auditor is not None:
            scheduler.auditor.ended(pod.key, Outcome.DELETED)
            scheduler.auditor.gone(pod)
        if scheduler.parts.gangs is not None and pod.gang:
            self._group_changed(scheduler.parts.gangs.remove_pod(pod))

    def reservations_changed(self, named: frozenset[str]) -> None:
        """Pods that a reservation names have a class of their own: they are read again."""
        waiting = tuple(self._scheduler.waiting.values()) if named else ()
        for each in waiting:
            if each.uid not in named and each.key.partition("/")[2] not in named:
                continue
            item = self._scheduler.feed.pod(each.key)
            pod = shapes.again(item) if item is not None else None
            if item is not None and pod is not None and item.whole is not None:
                self.waits(pod, item.whole.said)
        self.happened(Event.RESERVATION)

    def groups_changed(self, groups: Iterable[str]) -> None:
        """What declares gangs came, changed or went."""
        for group in groups:
            self._group_changed(group, helped=True)

    def _forget(self, pod: Pod) -> None:
        scheduler = self._scheduler
        scheduler.queue.remove(pod.key)
        scheduler.conditions.forget(pod.key)
        for engine in scheduler.parts.engines.values():
            engine.forget(pod.key)
        if scheduler.parts.quotas is not None:
            scheduler.parts.quotas.forget(pod.key)

    def _audit_end(self, name: str, outcome: Outcome) -> None:
        if self._scheduler.auditor is not None:
            self._scheduler.auditor.ended(name, outcome)

    # Into the queue.

    def _enqueue(self, pod: Pod, *, helped: bool = False) -> None:
        scheduler = self._scheduler
        if pod.terminating:
            scheduler.queue.remove(pod.key)
            return
        book = scheduler.parts.gangs
        if book is not None and pod.gang:
            self._group_changed(book.group_of(pod.gang), helped=helped)
            return
        gate = f"waits for scheduling gates: {', '.join(pod.gates)}" if pod.gates else ""
        unit = Unit(pod.key, pod.cls.priority, pod.created_s, (pod.key,), gate, pod.cls.number)
        scheduler.queue.put(unit, scheduler.now_s())
        if scheduler.auditor is not None:
            scheduler.auditor.waits(unit, pod)

    def _group_changed(self, group: str, *, helped: bool = False) -> None:
        """A flock of members comes as one batch of changes: the group is looked at once."""
        if group and self._scheduler.leading:
            self._groups[group] = helped or self._groups.get(group, False)
            self._scheduler.wake()

    def put_groups(self) -> None:
        """Gang groups that changed since the last decision."""
        scheduler = self._scheduler
        book = scheduler.parts.gangs
        groups, self._groups = self._groups, {}
        for group, helped in groups.items() if book is not None else ():
            assert book is not None
            name = gangs.UNIT + group
            unit = gangs.unit(book, group, scheduler.context.wall())
            if unit is None:
                if name not in scheduler.bindings.units:
                    scheduler.end_unit(name)
                    self._audit_end(name, Outcome.DELETED)
                self._gated.pop(group, None)
                continue
            before = scheduler.queue.unit(name)
            scheduler.queue.put(unit, scheduler.now_s())
            if scheduler.auditor is not None:
                scheduler.auditor.waits(unit, scheduler.waiting.get(unit.pods[0]))
            if helped or (before is not None and before.pods != unit.pods):
                scheduler.queue.wake(name, scheduler.now_s())
            if not unit.gate:
                self._gated.pop(group, None)
            else:
                self._gated.setdefault(group, scheduler.now_s())

    def say_gates(self) -> None:
        """Members come one after the other: only a gang that lacks some for a while is told."""
        book, now_s = self._scheduler.parts.gangs, self._scheduler.now_s()
        if book is None:
            return
        for group, since_s in self._gated.items():
            if now_s - since_s >= GATED_S:
                self._gated[group] = now_s
                gate = book.gate(group)
                for pod in book.pending(group) if gate else ():
                    self._scheduler.conditions.tell(pod, Said(UNSCHEDULABLE, gate))


def _members(unit: Unit, waiting: Mapping[str, Pod]) -> list[Pod]:
    """One pod of each class; none where there are too many classes to ask about each."""
    found: dict[int, Pod] = {}
    for key in unit.pods:
        pod = waiting.get(key)
        if pod is not None:
            found.setdefault(pod.cls.number, pod)
            if len(found) > _MOST_KINDS:
                return []
    return list(found.values())


def _differs(before: Pod, pod: Pod) -> bool:
    """Whether it is worth another try."""
    return (
        before.cls is not pod.cls
        or before.gates != pod.gates
        or before.annotations != pod.annotations
        or before.annotation_bytes != pod.annotation_bytes
    )
