"""One decision after the other: what becomes of a unit that leaves the queue."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import structlog

from koord_scheduler.daemon.scheduler import telling
from koord_scheduler.daemon.scheduler.auditing import Step
from koord_scheduler.daemon.scheduler.figures import (
    GANG_ATTEMPTED,
    GANG_GONE,
    GANG_SUCCEEDED,
    NOT_ELIGIBLE,
)
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.scheduling.conditions import UNSCHEDULABLE, Said
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import explain, gangs
from koord_scheduler.plan.engine import SCHEDULING_GATES, Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.jobs import JobPreemption
from koord_scheduler.plan.preemption.pods import VICTIMS_LEAVE, Preemption, may_make_room
from koord_scheduler.plan.queue import Unit, space_of

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.scheduler import Scheduler

_RESTS = "the namespace took much CPU to look for pods that could go; it looks again soon"
_log = structlog.get_logger()


class Decisions:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def decide(self, unit: Unit) -> None:
        """Its pods are on their way to nodes afterwards, or told why they are not."""
        scheduler = self._scheduler
        scheduler.cluster.now_s = scheduler.context.wall()
        if not scheduler.context.leads():
            scheduler.queue.again(unit.name, scheduler.now_s())
            return
        scheduler.monitor.began(unit)
        try:
            if unit.name.startswith(gangs.UNIT):
                self._try_group(unit)
            else:
                self._try_pod(unit)
        except (*UNFORESEEN, PluginError) as error:
            # It costs this unit alone, or whoever may write one pod stops a cluster.
            _log.error("a defect: please report it", unit=unit.name, exc_info=error)
            scheduler.monitor.ended(unit.name)
            scheduler.queue.again(unit.name, scheduler.now_s())

    def spoken(self, pod: Pod, message: str) -> None:
        """The event goes with the condition; those of groups are told beside it."""
        if not pod.gang:
            telling.failure(self._scheduler.context.events, pod, message)

    def _try_pod(self, unit: Unit) -> None:
        scheduler = self._scheduler
        pod = scheduler.waiting.get(unit.name)
        if pod is None or pod.key in scheduler.cluster.claims:
            scheduler.end_unit(unit.name)
            return
        engine = scheduler.parts.engines[pod.scheduler]
        scheduler.flags.before(engine, pod)
        with scheduler.figures.deciding():
            outcome = engine.place(pod)
        scheduler.figures.looked_at(outcome)
        if isinstance(outcome, Placement):
            scheduler.bindings.send(unit, (outcome,))
        else:
            self._failed(unit, pod, outcome)

    def _try_group(self, unit: Unit) -> None:
        scheduler = self._scheduler
        book = scheduler.parts.gangs
        group = unit.name.removeprefix(gangs.UNIT)
        pending = book.pending(group) if book is not None else []
        begun_s = time.perf_counter()
        if book is None or not pending:
            scheduler.figures.cycle(GANG_GONE, 0, 0.0)
            scheduler.end_unit(unit.name)
            return
        engine = scheduler.parts.engines.get(pending[0].scheduler, scheduler.parts.first)
        with scheduler.figures.deciding():
            outcome = gangs.place_group(engine, book, group, scheduler.network)
        reason = GANG_ATTEMPTED
        if isinstance(outcome, gangs.GroupFailed):
            self._failed_group(unit, engine, outcome)
        else:
            self._placed_group(unit, outcome)
            reason = GANG_SUCCEEDED if outcome.placements else GANG_ATTEMPTED
        scheduler.figures.cycle(reason, len(pending), time.perf_counter() - begun_s)

    def _placed_group(self, unit: Unit, outcome: gangs.GroupPlaced) -> None:
        scheduler = self._scheduler
        for placement in outcome.placements:
            scheduler.figures.looked_at(placement)
        for failure in outcome.left:
            scheduler.figures.looked_at(failure)
            scheduler.conditions.tell(failure.pod, Said(UNSCHEDULABLE, failure.text()))
        left = ((each.pod, each.text()) for each in outcome.left)
        telling.failures(scheduler.context.events, left)
        refused_by = frozenset[str]().union(*(each.plugins for each in outcome.left))
        if outcome.placements:
            scheduler.bindings.send(unit, outcome.placements, refused_by)
        else:
            self._audit(unit.name, Step.ALL_TRIED, ", ".join(sorted(refused_by)))
            self._give_up(unit.name, refused_by)

    def _failed(self, unit: Unit, pod: Pod, failure: Failure) -> None:
        scheduler = self._scheduler
        engine = scheduler.parts.engines[pod.scheduler]
        words, nominated, again_s = self._make_room(engine, pod, failure)
        if again_s and scheduler.parts.preemptors[pod.scheduler].goes_on(pod):
            scheduler.monitor.ended(unit.name)
            scheduler.queue.go_on(unit.name)
            return
        scheduler.figures.counts("unschedulable", pod.scheduler)
        scheduler.flags.failed(engine, failure)
        # What is said when it was looked for victims on all nodes stays.
        known = again_s and scheduler.conditions.told(pod.key)
        if failure.refused_by != SCHEDULING_GATES and not known:
            said = Said(UNSCHEDULABLE, explain.condition(failure.text(), None, words), nominated)
            if scheduler.conditions.tell(pod, said):
                self.spoken(pod, said.message)
        if failure.untried:
            scheduler.monitor.ended(unit.name)
            scheduler.queue.again(unit.name, scheduler.now_s(), again_s)
        else:
            self._give_up(unit.name, failure.plugins, again_s)

    def _make_room(
        self, engine: Engine, pod: Pod, failure: Failure
    ) -> tuple[str, str | None, float]:
        """Words for the condition, the node to which the pod is nominated (empty: to none any more;
        None: as before), and when to try again even if nothing happens; 0: never."""
        scheduler = self._scheduler
        preemptor = scheduler.parts.preemptors.get(pod.scheduler)
        may_help = scheduler.parts.may_evict(pod) and may_make_room(engine, failure)
        if preemptor is None or not may_help:
            self._audit(pod.key, Step.FAILED, failure)
            return "", None, 0.0
        accounts, space, now_s = scheduler.queue.accounts, space_of(pod.key), scheduler.now_s()
        denied_s = 0.0 if preemptor.goes_on(pod) else accounts.of(space).denied_s(now_s)
        if denied_s:
            self._audit(pod.key, Step.NO_ROOM, _RESTS)
            return _RESTS, None, denied_s
        begun_s, found = accounts.cpu_s(), None
        try:
            found = preemptor.preempt(pod, scheduler.feed.budgets(), accounts.spent_s())
        except PluginError as error:
            self._audit(pod.key, Step.NO_ROOM, str(error))
            return str(error), None, 0.0
        finally:
            cost_s, room = accounts.cpu_s() - begun_s, isinstance(found, Preemption)
            accounts.looked_for_victims(space, cost_s, now_s, found=room)
        if not isinstance(found, Preemption):
            self._audit(pod.key, _step(found.words), found.words)
            if found.cut:
                return found.words, None, now_s
            ends = not found.words.startswith(NOT_ELIGIBLE)
            return found.words, self._end_nomination(engine, pod) if ends else None, 0.0
        if scheduler.auditor is not None:
            scheduler.auditor.nominated(pod.key, found.victims)
        engine.nominate(pod, found.node)
        scheduler.spawn(scheduler.evictions.preempt(found))
        return "", found.node, 0.0

    def _end_nomination(self, engine: Engine, pod: Pod) -> str | None:
        """Others may have what is left of the room that was made for it. Return what the pod's
        status is to say of its node."""
        node = engine.nominated_to(pod.key)
        engine.forget(pod.key)
        if node:
            self._scheduler.changes.happened(Event.POD_GONE, (node,))
        return "" if node or pod.nominated else None

    def _failed_group(self, unit: Unit, engine: Engine, failed: gangs.GroupFailed) -> None:
        scheduler = self._scheduler
        scheduler.figures.counts("unschedulable", failed.pods[0].scheduler)
        nominations, again_s = self._make_room_for_group(unit, engine, failed)
        for pod in failed.pods:
            said = Said(UNSCHEDULABLE, failed.text(pod.key), nominations.get(pod.key))
            scheduler.conditions.tell(pod, said)
        told = ((pod, failed.text(pod.key)) for pod in failed.pods)
        telling.failures(scheduler.context.events, told)
        self._give_up(unit.name, failed.refused_by, again_s)

    def _make_room_for_group(
        self, unit: Unit, engine: Engine, failed: gangs.GroupFailed
    ) -> tuple[dict[str, str], float]:
        """The node to which each member is nominated, empty: to none any more; and when to try
        again even if nothing happens, 0: never."""
        scheduler = self._scheduler
        book = scheduler.parts.gangs
        if failed.root is None or book is None:
            self._audit(unit.name, Step.FAILED, failed.words)
            return {}, 0.0
        scheduler.figures.looked_at(failed.root)
        scheduler.flags.failed(engine, failed.root)
        accounts, now_s = scheduler.queue.accounts, scheduler.now_s()
        space = space_of(failed.pods[0].key)
        denied_s = accounts.of(space).denied_s(now_s) if book.args.enable_preemption else 0.0
        if denied_s:
            self._audit(unit.name, Step.NO_ROOM, _RESTS)
            return {}, denied_s
        begun_s, cpu_s = time.perf_counter(), accounts.cpu_s()
        found = gangs.make_room(engine, book, failed, scheduler.evictions.refuse, scheduler.network)
        room = isinstance(found, JobPreemption)
        accounts.looked_for_victims(space, accounts.cpu_s() - cpu_s, now_s, found=room)
        if book.args.enable_preemption:
            scheduler.figures.job_preemption(failed.group, found, time.perf_counter() - begun_s)
        if not isinstance(found, JobPreemption):
            step = _step(found.words) if book.args.enable_preemption else Step.FAILED
            self._audit(unit.name, step, failed.words)
            if found.words.startswith(NOT_ELIGIBLE):
                return {}, 0.0
            ended = ((pod.key, self._end_nomination(engine, pod)) for pod in failed.pods)
            return {key: said for key, said in ended if said is not None}, 0.0
        for pod in failed.pods:
            engine.forget(pod.key)
        if scheduler.auditor is not None:
            scheduler.auditor.nominated(
                unit.name, itertools.chain.from_iterable(found.victims.values())
            )
        for pod in failed.pods:
            if pod.key in found.nominations:
                engine.nominate(pod, found.nominations[pod.key])
        for node, victims in found.victims.items():
            by = Preemption(failed.root.pod, node, victims)
            scheduler.spawn(scheduler.evictions.preempt(by))
        return dict(found.nominations), 0.0

    def _audit(self, name: str, step: Step, why: str | Failure) -> None:
        if self._scheduler.auditor is not None:
            words = why if isinstance(why, str) else why.text()
            self._scheduler.auditor.step(name, step, words)

    def _give_up(self, name: str, refused_by: frozenset[str], again_s: float = 0.0) -> None:
        scheduler = self._scheduler
        scheduler.monitor.ended(name)
        scheduler.queue.failed(name, scheduler.now_s(), refused_by, again_s)


def _step(words: str) -> Step:
    """What the words of who looked for room say to the auditor."""
    if words.startswith(VICTIMS_LEAVE):
        return Step.VICTIMS_LEAVE
    return Step.FAILED if words.startswith(NOT_ELIGIBLE) else Step.NO_ROOM
