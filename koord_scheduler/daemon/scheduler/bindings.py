"""Bindings on their way to the API server, and what becomes of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from koord_scheduler.daemon.scheduler import telling
from koord_scheduler.daemon.scheduler.auditing import Step
from koord_scheduler.daemon.scheduler.auditor import Outcome as Audited
from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.scheduling.binder import Binder, Bound, Outcome
from koord_scheduler.model.annotations import unbearable
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import gangs
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.outcomes import Placement
from koord_scheduler.plan.queue import Unit

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.scheduler import Scheduler

MOST = 256
"""On the way at once. More decisions than these would rest on what may not come about."""
_log = structlog.get_logger()


class Bindings:
    """``number``: of pods whose bindings are on the way. ``units``: theirs. A gang whose members
    all have a claim leaves the queue when their bindings came about, not before: some may fail."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.number = 0
        self.units: set[str] = set()
        self._scheduler = scheduler
        self._binder = Binder(scheduler.context.client, scheduler.context.writes, self._node_of)

    @property
    def full(self) -> bool:
        return self.number >= MOST

    def begin(self) -> None:
        self.number, self.units = 0, set()

    def end(self) -> None:
        """What was decided and not bound is nobody's decision any more."""
        for key, placement in tuple(self._scheduler.assumed.items()):
            self._take_back(key)
            self._look_again(placement.pod)

    def send(
        self,
        unit: Unit,
        placements: Sequence[Placement],
        refused_by: frozenset[str] = frozenset(),
    ) -> None:
        """``refused_by``: who refused the members of the unit that are not among them."""
        for each in placements:
            self._scheduler.assumed[each.pod.key] = each
        self.number += len(placements)
        self.units.add(unit.name)
        self._scheduler.spawn(self._bind(unit, placements, refused_by))

    async def _bind(
        self, unit: Unit, placements: Sequence[Placement], refused_by: frozenset[str]
    ) -> None:
        scheduler = self._scheduler
        again = False
        try:
            if len(placements) == 1:
                outcomes = [await self._bind_one(placements[0])]
            else:
                outcomes = await asyncio.gather(*map(self._bind_one, placements))
        finally:
            self.number -= len(placements)
            self.units.discard(unit.name)
            scheduler.wake()
        for placement, outcome in zip(placements, outcomes, strict=True):
            again = self._settle(placement, outcome) or again
        if not unit.name.startswith(gangs.UNIT) and self._follows(placements[0].pod):
            # Another pod by this name came meanwhile, and the queue is about that one.
            return
        scheduler.monitor.ended(unit.name)
        if scheduler.auditor is not None:
            if again:
                scheduler.auditor.step(unit.name, Step.FAILED, "a binding failed")
            elif any(outcome.bound is Bound.YES for outcome in outcomes):
                scheduler.auditor.ended(unit.name, Audited.SCHEDULED)
        if again:
            scheduler.queue.again(unit.name, scheduler.now_s())
        elif unit.name.startswith(gangs.UNIT):
            self._after_group(unit.name, refused_by)
        else:
            scheduler.queue.remove(unit.name)

    async def _bind_one(self, placement: Placement) -> Outcome:
        reservations = self._scheduler.reservations
        if placement.pod.holds and reservations is not None:
            return await reservations.bind(placement)
        item = self._scheduler.feed.pod(placement.pod.key)
        if item is not None and item.pod.uid == placement.pod.uid:  # as it is by now
            now = item.pod
            said = unbearable(now.annotations, now.annotation_bytes, placement.annotations)
            if said:
                return Outcome(Bound.NO, said)
        return await self._binder.bind(placement.pod, placement.node, placement.annotations)

    def _settle(self, placement: Placement, outcome: Outcome) -> bool:
        """Whether the pod is to be decided for again."""
        scheduler, pod = self._scheduler, placement.pod
        if outcome.bound is Bound.YES:
            scheduler.figures.counts("scheduled", pod.scheduler)
            scheduler.figures.bound(pod)
            if scheduler.parts.gangs is not None and pod.gang:
                scheduler.parts.gangs.bound(pod)
            telling.success(scheduler.context.events, pod, placement.node)
            return False
        scheduler.figures.counts("error", pod.scheduler)
        if outcome.bound is Bound.NO:
            _log.info("a binding failed", pod=pod.key, node=placement.node, why=outcome.why)
        if scheduler.assumed.get(pod.key) is placement:
            self._take_back(pod.key)
            self._look_again(pod)
        return outcome.bound is Bound.NO

    def _follows(self, pod: Pod) -> bool:
        now = self._scheduler.waiting.get(pod.key)
        return now is not None and now.uid != pod.uid

    def _look_again(self, pod: Pod) -> None:
        """What the watch told of it while its binding was on the way was not looked at."""
        if pod.holds and self._scheduler.reservations is not None:
            self._scheduler.reservations.look_again(pod)
            return
        item = self._scheduler.feed.pod(pod.key)
        if item is None or item.pod.uid != pod.uid or item.whole is None:
            return
        now = shapes.again(item)
        if now is not None:
            self._scheduler.changes.waits(now, item.whole.said)

    def _after_group(self, name: str, refused_by: frozenset[str]) -> None:
        scheduler = self._scheduler
        book = scheduler.parts.gangs
        unit = None
        if book is not None:
            unit = gangs.unit(book, name.removeprefix(gangs.UNIT), scheduler.context.wall())
        if unit is None:
            scheduler.queue.remove(name)
            return
        scheduler.queue.put(unit, scheduler.now_s())
        refused_by = refused_by or frozenset({"Coscheduling"})
        scheduler.queue.failed(name, scheduler.now_s(), refused_by)

    def _take_back(self, key: str) -> None:
        """A claim that no watch has shown to be a fact."""
        scheduler = self._scheduler
        placement = scheduler.assumed.pop(key, None)
        claim = scheduler.cluster.claims.get(key)
        if placement is not None and claim is not None and not claim.pod.node:
            scheduler.cluster.remove(key)
            scheduler.changes.happened(Event.POD_GONE, (claim.node,), (claim.pod.cls,))

    def _node_of(self, pod: Pod) -> str | None:
        item = self._scheduler.feed.pod(pod.key)
        if item is None or item.pod.uid != pod.uid:
            return None
        return item.pod.node
