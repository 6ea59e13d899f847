"""The scheduler: takes the next pod or gang, decides, and lets the binding go out on its own.

A decision counts in the cluster at once, so the next one is made before the API server answered. A
binding that did not come about is taken back, and its pods are tried again. It keeps nothing that
the API server does not have too: a new leader begins with what the watches show.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import structlog
from msgspec import structs

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.scheduler import reservation_figures
from koord_scheduler.daemon.scheduler.figures import Figures
from koord_scheduler.daemon.scheduler.flags import Flags
from koord_scheduler.daemon.scheduler.preempting import Evictions
from koord_scheduler.daemon.scheduler.reservations import Reservations
from koord_scheduler.daemon.scheduler.setup import Parts, Setup
from koord_scheduler.kube import reservation_shapes
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.scheduling.binder import Binder, Bound, Outcome
from koord_scheduler.kube.scheduling.conditions import UNSCHEDULABLE, Conditions, Said
from koord_scheduler.kube.scheduling.feed import Feed
from koord_scheduler.kube.scheduling.sources import SOURCES
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.reservation import plugin as reservation_plugin
from koord_scheduler.place.reservation.plugin import ReservationPlugin
from koord_scheduler.plan import explain, gangs
from koord_scheduler.plan.engine import SCHEDULING_GATES, Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.job_preemption import JobPreemption
from koord_scheduler.plan.network import Network
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption import Preemption
from koord_scheduler.plan.queue import Queue, Unit
from koordlet.kube.events import Subject

MOST_BINDINGS = 256
"""On the way at once. More decisions than these would rest on what may not come about."""
GATED_S = 5.0
"""A gang that lacks members for so long says so."""
_SLICE_S = 0.005
"""Decisions in a row, before watches and answers have their turn."""
_LOOK_EVERY_S = 1.0
_LOCAL = frozenset({Event.LOAD, Event.DEVICES, Event.TOPOLOGY})
"""Events that come all the time, and open no other node than theirs."""
_log = structlog.get_logger()


class Scheduler:
    """A `Controller`, and what the feed tells of changes to. Public fields are for services."""

    def __init__(self, context: Context, setup: Setup) -> None:
        self.context = context
        self.cluster = Cluster()
        self.parts = Parts(self.cluster, setup.profiles)
        self.queue = Queue()
        self.waiting: dict[str, Pod] = {}
        """Pods of ours without a node, by key."""
        self.assumed: dict[str, Placement] = {}
        """Decided, and not shown by the watch yet."""
        self.network = Network(self.cluster)
        self.flags = Flags()
        self.figures = Figures(context.metrics, self)
        self.conditions = Conditions(context.writes, clock=context.clock, wall=context.wall)
        plugins = self.parts.plugins()
        self.feed = Feed(
            context.watches,
            self.cluster,
            self.parts.first.recognise,
            self,
            [source for source in SOURCES if source.plugins & plugins],
            context.wall,
        )
        self.reservations: Reservations | None = None
        if isinstance(plugin := self.parts.plugin(reservation_plugin.NAME), ReservationPlugin):
            self.reservations = Reservations(context, self.cluster, self, plugin.args)
            self.conditions.of_reservation = self.reservations.say
            reservation_figures.declare(context.metrics, self.reservations.known, self.cluster)
        self.evictions = Evictions(context, self._still_waits)
        for preemptor in self.parts.preemptors.values():
            preemptor.ledger = self.evictions.refuse
        self.binder = Binder(context.client, context.writes, self._node_of)
        self.leading = False
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._bindings = 0
        self._binding_units: set[str] = set()
        """A gang whose members all have a claim leaves the queue when their bindings came about,
        not before: some may fail."""
        self._groups: dict[str, None] = {}
        """Gang groups to look at before the next decision."""
        self._gated: dict[str, float] = {}
        """Gang groups that lack members, and since when, or when it was told last."""

    # The role.

    async def run(self) -> None:
        """Until it is cancelled."""
        self._begin()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self.conditions.run(), name="conditions")
                self._group.create_task(self._decide(), name="decide")
                self._group.create_task(self._look(), name="look")
                if self.reservations is not None:
                    self._group.create_task(self.reservations.run(), name="reservations")
        finally:
            self._end()

    def _begin(self) -> None:
        self.queue, self._groups, self._gated = Queue(), {}, {}
        self.leading = True
        self.context.placing.next_node = self.next_node
        self._bindings, self._binding_units = 0, set()
        if self.parts.gangs is not None:
            self.parts.gangs.leads_since_s = self.context.wall()
        for pod in tuple(self.waiting.values()):
            self._enqueue(pod)

    def _end(self) -> None:
        """What was decided and not bound is nobody's decision any more."""
        self.leading = False
        self.context.placing.next_node = None
        self._group = None
        for key, placement in tuple(self.assumed.items()):
            self._take_back(key)
            self._look_again(placement.pod)
        self.conditions.stop()
        self.figures.ended_all()

    async def _decide(self) -> None:
        begun_s = time.monotonic()
        while True:
            self._put_groups()
            unit = self.queue.pop(self._now_s()) if self._bindings < MOST_BINDINGS else None
            if unit is None:
                await self._until_work()
                begun_s = time.monotonic()
                continue
            self._try(unit)
            if time.monotonic() - begun_s >= _SLICE_S:
                await asyncio.sleep(0)
                begun_s = time.monotonic()

    async def _until_work(self) -> None:
        self._wake.clear()
        # With as many bindings on the way as may be, their ends alone are worth waiting for.
        next_s = self.queue.next_s() if self._bindings < MOST_BINDINGS else None
        wait_s = _LOOK_EVERY_S if next_s is None else next_s - self._now_s()
        try:
            async with asyncio.timeout(min(max(wait_s, 0.001), _LOOK_EVERY_S)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _look(self) -> None:
        """What time alone changes."""
        while True:
            now_s = self.context.wall()
            ended = False
            for engine in self.parts.engines.values():
                ended = engine.tick(now_s) or ended
            if ended:
                self.happened(Event.TIME)
            self.figures.look()
            self._say_gates()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _now_s(self) -> float:
        """Of the queue, which must not stand still when somebody sets the clock back."""
        return self.context.clock()

    # Decisions.

    def _try(self, unit: Unit) -> None:
        self.cluster.now_s = self.context.wall()
        if not self.context.leads():
            self.queue.again(unit.name, self._now_s())
            return
        self.figures.began(unit.name)
        try:
            if unit.name.startswith(gangs.UNIT):
                self._try_group(unit)
            else:
                self._try_pod(unit)
        except (*UNFORESEEN, PluginError) as error:
            # It costs this unit alone, or whoever may write one pod stops a cluster.
            _log.error("a defect: please report it", unit=unit.name, exc_info=error)
            self.figures.ended(unit.name)
            self.queue.again(unit.name, self._now_s())

    def _try_pod(self, unit: Unit) -> None:
        pod = self.waiting.get(unit.name)
        if pod is None or pod.key in self.cluster.claims:
            self._end_unit(unit.name)
            return
        engine = self.parts.engines[pod.scheduler]
        self.flags.before(engine, pod)
        with self.figures.deciding():
            outcome = engine.place(pod)
        if isinstance(outcome, Placement):
            self._send(unit, (outcome,))
        else:
            self._failed(unit, pod, outcome)

    def _try_group(self, unit: Unit) -> None:
        book = self.parts.gangs
        group = unit.name.removeprefix(gangs.UNIT)
        pending = book.pending(group) if book is not None else []
        if book is None or not pending:
            self._end_unit(unit.name)
            return
        engine = self.parts.engines.get(pending[0].scheduler, self.parts.first)
        with self.figures.deciding():
            outcome = gangs.place_group(engine, book, group, self.network)
        if isinstance(outcome, gangs.GroupFailed):
            self._failed_group(unit, engine, outcome)
            return
        for failure in outcome.left:
            self.conditions.tell(failure.pod, Said(UNSCHEDULABLE, failure.text()))
        refused_by = frozenset[str]().union(*(each.plugins for each in outcome.left))
        if outcome.placements:
            self._send(unit, outcome.placements, refused_by)
        else:
            self._give_up(unit.name, refused_by)

    def _failed(self, unit: Unit, pod: Pod, failure: Failure) -> None:
        engine = self.parts.engines[pod.scheduler]
        self.figures.counts("unschedulable", pod.scheduler)
        self.flags.failed(engine, failure)
        words, nominated = "", None
        gates = {gate.name for gate in engine.gates}
        preemptor = self.parts.preemptors.get(pod.scheduler)
        if self._may_not_preempt(pod):
            preemptor = None
        if preemptor is not None and (failure.resolvable or failure.refused_by in gates):
            try:
                found = preemptor.preempt(pod, self.feed.budgets())
            except PluginError as error:
                words = str(error)
            else:
                if isinstance(found, Preemption):
                    nominated = found.node
                    engine.nominate(pod, found.node)
                    self._spawn(self.evictions.preempt(found))
                else:
                    words = found.words
        if failure.refused_by != SCHEDULING_GATES:
            said = Said(UNSCHEDULABLE, explain.condition(failure.text(), None, words), nominated)
            self.conditions.tell(pod, said)
            self._tell_failure(pod, said.message)
        if failure.untried:
            self.figures.ended(unit.name)
            self.queue.again(unit.name, self._now_s())
        else:
            self._give_up(unit.name, failure.plugins)

    def _may_not_preempt(self, pod: Pod) -> bool:
        """Reserve pods evict nobody unless the arguments say so."""
        plugin = self.parts.plugin(reservation_plugin.NAME)
        if not pod.holds:
            return False
        return not (isinstance(plugin, ReservationPlugin) and plugin.args.enable_preemption)

    def _failed_group(self, unit: Unit, engine: Engine, failed: gangs.GroupFailed) -> None:
        self.figures.counts("unschedulable", failed.pods[0].scheduler)
        book = self.parts.gangs
        nominations: dict[str, str] = {}
        if failed.root is not None and book is not None:
            self.flags.failed(engine, failed.root)
            found = gangs.make_room(engine, book, failed, self.evictions.refuse, self.network)
            for pod in failed.pods:
                engine.forget(pod.key)
            if isinstance(found, JobPreemption):
                nominations = dict(found.nominations)
                for pod in failed.pods:
                    if pod.key in nominations:
                        engine.nominate(pod, nominations[pod.key])
                for node, victims in found.victims.items():
                    by = Preemption(failed.root.pod, node, victims)
                    self._spawn(self.evictions.preempt(by))
        for pod in failed.pods:
            said = Said(UNSCHEDULABLE, failed.text(pod.key), nominations.get(pod.key))
            self.conditions.tell(pod, said)
        self._tell_failure(failed.pods[0], failed.words)
        self._give_up(unit.name, failed.refused_by)

    def _give_up(self, name: str, refused_by: frozenset[str]) -> None:
        self.figures.ended(name)
        self.queue.failed(name, self._now_s(), refused_by)

    def _end_unit(self, name: str) -> None:
        self.figures.ended(name)
        self.queue.remove(name)

    # Bindings.

    def _send(
        self,
        unit: Unit,
        placements: Sequence[Placement],
        refused_by: frozenset[str] = frozenset(),
    ) -> None:
        for each in placements:
            self.assumed[each.pod.key] = each
        self._bindings += len(placements)
        self._binding_units.add(unit.name)
        self._spawn(self._bind(unit, placements, refused_by))

    async def _bind(
        self, unit: Unit, placements: Sequence[Placement], refused_by: frozenset[str]
    ) -> None:
        again = False
        try:
            if len(placements) == 1:
                outcomes = [await self._bind_one(placements[0])]
            else:
                outcomes = await asyncio.gather(*map(self._bind_one, placements))
        finally:
            self._bindings -= len(placements)
            self._binding_units.discard(unit.name)
            self._wake.set()
        for placement, outcome in zip(placements, outcomes, strict=True):
            again = self._settle(placement, outcome) or again
        if not unit.name.startswith(gangs.UNIT) and self._follows(placements[0].pod):
            # Another pod by this name came meanwhile, and the queue is about that one.
            return
        self.figures.ended(unit.name)
        if again:
            self.queue.again(unit.name, self._now_s())
        elif unit.name.startswith(gangs.UNIT):
            self._after_group(unit.name, refused_by)
        else:
            self.queue.remove(unit.name)

    async def _bind_one(self, placement: Placement) -> Outcome:
        if placement.pod.holds and self.reservations is not None:
            return await self.reservations.bind(placement)
        return await self.binder.bind(placement.pod, placement.node, placement.annotations)

    def _settle(self, placement: Placement, outcome: Outcome) -> bool:
        """Whether the pod is to be decided for again."""
        pod = placement.pod
        if outcome.bound is Bound.YES:
            self.figures.counts("scheduled", pod.scheduler)
            self.figures.bound(pod)
            if self.parts.gangs is not None and pod.gang:
                self.parts.gangs.bound(pod)
            self._tell(pod, "Normal", "Scheduled", "Pods got a node")
            return False
        self.figures.counts("error", pod.scheduler)
        if outcome.bound is Bound.NO:
            _log.info("a binding failed", pod=pod.key, node=placement.node, why=outcome.why)
        if self.assumed.get(pod.key) is placement:
            self._take_back(pod.key)
            self._look_again(pod)
        return outcome.bound is Bound.NO

    def _follows(self, pod: Pod) -> bool:
        now = self.waiting.get(pod.key)
        return now is not None and now.uid != pod.uid

    def _look_again(self, pod: Pod) -> None:
        """What the watch told of it while its binding was on the way was not looked at."""
        item = self.feed.pod(pod.key)
        if item is None or item.pod.uid != pod.uid or item.whole is None:
            return
        now = shapes.again(item)
        if now is not None:
            self.waits(now, item.whole.said)

    def _after_group(self, name: str, refused_by: frozenset[str]) -> None:
        book = self.parts.gangs
        unit = None
        if book is not None:
            unit = gangs.unit(book, name.removeprefix(gangs.UNIT), self.context.wall())
        if unit is None:
            self.queue.remove(name)
            return
        self.queue.put(unit, self._now_s())
        self.queue.failed(name, self._now_s(), refused_by or frozenset({"Coscheduling"}))

    def _take_back(self, key: str) -> None:
        """A claim that no watch has shown to be a fact."""
        placement = self.assumed.pop(key, None)
        claim = self.cluster.claims.get(key)
        if placement is not None and claim is not None and not claim.pod.node:
            self.cluster.remove(key)
            self.happened(Event.POD_GONE, (claim.node,))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._group.create_task(work)

    def next_node(self, pod: Pod) -> str | None:
        """`Placing.next_node`: a trial of the engine that placed it."""
        claim = self.cluster.claims.get(pod.key)
        engine = self.parts.engines.get(claim.pod.scheduler) if claim is not None else None
        if claim is None or engine is None or claim.pod.uid != pod.uid:
            raise LookupError(pod.key)
        again = structs.replace(claim.pod, node="", nominated="", phase="Pending", ready=False)
        self.cluster.now_s = self.context.wall()
        with self.cluster.trial():
            self.cluster.remove(pod.key)
            outcome = engine.place(again)
        return outcome.node if isinstance(outcome, Placement) else None

    def _still_waits(self, pod: Pod) -> bool:
        known = self.waiting.get(pod.key)
        same = known is not None and known.uid == pod.uid
        return same and pod.key not in self.cluster.claims

    def _node_of(self, pod: Pod) -> str | None:
        item = self.feed.pod(pod.key)
        if item is None or item.pod.uid != pod.uid:
            return None
        return item.pod.node

    # What the feed tells.

    def happened(self, event: Event, nodes: Collection[str] = ()) -> None:
        if not self.leading:
            return
        helped: Callable[[Unit], bool] | None = None
        if event in _LOCAL and nodes:
            rows = np.array([self.cluster.row[n] for n in nodes if n in self.cluster.row], np.intp)
            if not len(rows):
                return

            def helped(unit: Unit) -> bool:
                pod = self.waiting.get(unit.pods[0]) if unit.pods else None
                if pod is None or pod.scheduler not in self.parts.engines:
                    return True
                return self.parts.engines[pod.scheduler].opens(pod.cls, rows)

        if self.queue.event(event, self._now_s(), helped):
            self._wake.set()

    def waits(self, pod: Pod, said: tuple[str, str]) -> None:
        if pod.scheduler not in self.parts.engines:
            if pod.nominated:
                for engine in self.parts.engines.values():
                    engine.nominate(pod, pod.nominated)
            if self.waiting.pop(pod.key, None) is not None:
                self._forget(pod)
            return
        placement = self.assumed.get(pod.key)
        if placement is not None and placement.pod.uid == pod.uid:
            return
        self.conditions.learn(pod.key, *said)
        before = self.waiting.get(pod.key)
        self.waiting[pod.key] = pod
        if before is not None and before.gang != pod.gang:
            self._changed_gang(before)
        engine = self.parts.engines[pod.scheduler]
        if pod.nominated and engine.nomination(pod) == pod.nominated:
            engine.nominate(pod, pod.nominated)
        if self.parts.quotas is not None and not pod.holds:
            self.parts.quotas.wait(pod)
        if self.parts.gangs is not None and pod.gang:
            self.parts.gangs.set_pod(pod)
        if self.leading:
            self._enqueue(pod)
            if before is not None and _differs(before, pod):
                self.queue.wake(pod.key, self._now_s())
            self._wake.set()

    def _changed_gang(self, before: Pod) -> None:
        """It is another unit from now on."""
        self.queue.remove(before.key)
        if self.parts.gangs is not None and before.gang:
            self._group_changed(self.parts.gangs.remove_pod(before))

    def placed(self, pod: Pod) -> None:
        self.assumed.pop(pod.key, None)
        waited = self.waiting.pop(pod.key, None)
        if waited is not None:
            self._forget(pod)
            if waited.gang != pod.gang:
                self._changed_gang(waited)
        if self.parts.gangs is not None and pod.gang:
            self._group_changed(self.parts.gangs.set_pod(pod))

    def gone(self, pod: Pod) -> None:
        self.assumed.pop(pod.key, None)
        self.waiting.pop(pod.key, None)
        self._forget(pod)
        if self.parts.gangs is not None and pod.gang:
            self._group_changed(self.parts.gangs.remove_pod(pod))

    def reservations_changed(self, named: frozenset[str]) -> None:
        """Pods that a reservation names have a class of their own: they are read again."""
        for key in named:
            item = self.feed.pod(key)
            pod = shapes.again(item) if item is not None else None
            if item is not None and pod is not None and item.whole is not None:
                self.waits(pod, item.whole.said)
        self.happened(Event.RESERVATION)

    def groups_changed(self, groups: Iterable[str]) -> None:
        """What declares gangs came, changed or went."""
        for group in groups:
            self._group_changed(group)

    def _forget(self, pod: Pod) -> None:
        self.queue.remove(pod.key)
        self.conditions.forget(pod.key)
        for engine in self.parts.engines.values():
            engine.forget(pod.key)
        if self.parts.quotas is not None:
            self.parts.quotas.forget(pod.key)

    def _enqueue(self, pod: Pod) -> None:
        if pod.terminating:
            self.queue.remove(pod.key)
            return
        book = self.parts.gangs
        if book is not None and pod.gang:
            self._group_changed(book.group_of(pod.gang))
            return
        gate = f"waits for scheduling gates: {', '.join(pod.gates)}" if pod.gates else ""
        unit = Unit(pod.key, pod.cls.priority, pod.created_s, (pod.key,), gate)
        self.queue.put(unit, self._now_s())

    def _group_changed(self, group: str) -> None:
        """A flock of members comes as one batch of changes: the group is looked at once."""
        if group and self.leading:
            self._groups[group] = None
            self._wake.set()

    def _put_groups(self) -> None:
        book = self.parts.gangs
        groups, self._groups = self._groups, {}
        for group in groups if book is not None else ():
            assert book is not None
            name = gangs.UNIT + group
            unit = gangs.unit(book, group, self.context.wall())
            if unit is None:
                if name not in self._binding_units:
                    self._end_unit(name)
                self._gated.pop(group, None)
                continue
            before = self.queue.unit(name)
            self.queue.put(unit, self._now_s())
            if before is not None and before.pods != unit.pods:
                self.queue.wake(name, self._now_s())
            if not unit.gate:
                self._gated.pop(group, None)
            else:
                self._gated.setdefault(group, self._now_s())

    def _say_gates(self) -> None:
        """Members come one after the other: only a gang that lacks some for a while is told."""
        book, now_s = self.parts.gangs, self._now_s()
        if book is None:
            return
        for group, since_s in self._gated.items():
            if now_s - since_s >= GATED_S:
                self._gated[group] = now_s
                gate = book.gate(group)
                for pod in book.pending(group) if gate else ():
                    self.conditions.tell(pod, Said(UNSCHEDULABLE, gate))

    # What is told.

    def _tell_failure(self, pod: Pod, message: str) -> None:
        self._tell(pod, "Warning", "FailedScheduling", message)

    def _tell(
        self, pod: Pod, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """At the workload where there is one: an event for each of its pods would be as many writes
        as bindings."""
        namespace, _, name = pod.key.partition("/")
        owner = pod.owner
        subject = Subject("v1", "Pod", namespace, name, pod.uid)
        if pod.holds:
            group = reservation_shapes.RESERVATIONS.api_version
            subject = Subject(group, "Reservation", "", pod.holds, pod.uid)
        elif owner.name:
            subject = Subject(owner.api_version, owner.kind, namespace, owner.name, owner.uid)
        elif kind == "Normal":
            return
        self.context.events.tell(
            subject, "Warning" if kind == "Warning" else "Normal", reason, message
        )


def _differs(before: Pod, pod: Pod) -> bool:
    """Whether it is worth another try."""
    return (
        before.cls is not pod.cls
        or before.gates != pod.gates
        or before.annotations != pod.annotations
    )
