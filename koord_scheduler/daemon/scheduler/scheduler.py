"""The scheduler: takes the next pod or gang, decides, and lets the binding go out on its own.

A decision counts in the cluster at once, so the next one is made before the API server answered. A
binding that did not come about is taken back, and its pods are tried again. It keeps nothing that
the API server does not have too: a new leader begins with what the watches show.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import structlog
from msgspec import structs

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.scheduler import reservation_figures
from koord_scheduler.daemon.scheduler.auditor import Auditor
from koord_scheduler.daemon.scheduler.bindings import Bindings
from koord_scheduler.daemon.scheduler.changes import Changes
from koord_scheduler.daemon.scheduler.decisions import Decisions
from koord_scheduler.daemon.scheduler.figures import Figures, declare_devices
from koord_scheduler.daemon.scheduler.flags import Flags
from koord_scheduler.daemon.scheduler.monitor import Monitor
from koord_scheduler.daemon.scheduler.preempting import Evictions
from koord_scheduler.daemon.scheduler.reservations import Reservations
from koord_scheduler.daemon.scheduler.setup import Parts, Setup
from koord_scheduler.daemon.scheduler.watching import Watching
from koord_scheduler.kube.scheduling.conditions import Conditions
from koord_scheduler.kube.scheduling.feed import Feed
from koord_scheduler.kube.scheduling.sources import SOURCES
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.free import NAME as DEVICE_SHARE
from koord_scheduler.place.device.plugin import DeviceShare
from koord_scheduler.place.reservation.arguments import NAME as RESERVATION
from koord_scheduler.place.reservation.plugin import ReservationPlugin
from koord_scheduler.plan.accounts import Accounts
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.network import Network
from koord_scheduler.plan.outcomes import Placement
from koord_scheduler.plan.queue import Queue, Unit

_SLICE_S = 0.005
"""Decisions in a row, before watches and answers have their turn."""
_LOOK_EVERY_S = 1.0
_log = structlog.get_logger()


class Scheduler:
    """A `Controller`. Public fields are for services.

    `Changes` brings units into the queue, `Decisions` takes them from there, and `Bindings` brings
    them to their end."""

    def __init__(self, context: Context, setup: Setup, watching: Watching) -> None:
        self.context = context
        self.cluster = Cluster()
        self.parts = Parts(self.cluster, setup.profiles, setup.quota_gates)
        self.queue = Queue(Accounts(time.thread_time))
        self.waiting: dict[str, Pod] = {}
        """Pods of ours without a node, by key."""
        self.assumed: dict[str, Placement] = {}
        """Decided, and not shown by the watch yet."""
        for engine in self.parts.engines.values():
            engine.tell = _defect
        self.network = Network(self.cluster)
        self.flags = Flags()
        self.figures = Figures(context.metrics, self)
        self.monitor = Monitor(context.metrics, watching.monitor, self.waiting, context.clock)
        self.auditor: Auditor | None = None
        if watching.audit is not None:
            self.auditor = Auditor(
                context.metrics, watching.audit, watching.audit_labels, context.clock
            )
        self.conditions = Conditions(context.writes, clock=context.clock, wall=context.wall)
        self.changes = Changes(self)
        self.decisions = Decisions(self)
        self.conditions.spoken = self.decisions.spoken
        self.bindings = Bindings(self)
        plugins = self.parts.plugins()
        self.feed = Feed(
            context.watches,
            self.cluster,
            self.parts.first.recognise,
            self.changes,
            [source for source in SOURCES if source.plugins & plugins],
            context.wall,
        )
        self.reservations: Reservations | None = None
        if isinstance(plugin := self.parts.plugin(RESERVATION), ReservationPlugin):
            recognise = self.parts.first.recognise
            self.reservations = Reservations(
                context, self.cluster, self.changes, plugin.args, recognise
            )
            self.conditions.of_reservation = self.reservations.say
            reservation_figures.declare(context.metrics, self.reservations.known, self.cluster)
        if isinstance(plugin := self.parts.plugin(DEVICE_SHARE), DeviceShare):
            declare_devices(context.metrics, plugin, self.cluster)
        self.evictions = Evictions(context, self._still_waits)
        for preemptor in self.parts.preemptors.values():
            preemptor.ledger, preemptor.cpu_s = self.evictions.refuse, time.thread_time
        self.leading = False
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()

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
        self.queue = Queue(Accounts(time.thread_time))
        self.leading = True
        # Reports that are there already arrive now.
        self.cluster.now_s = self.context.wall()
        self.bindings.begin()
        self.context.placing.next_node = self.next_node
        if self.parts.gangs is not None:
            self.parts.gangs.leads_since_s = self.context.wall()
        self.changes.begin()

    def _end(self) -> None:
        self.leading = False
        self.context.placing.next_node = None
        self._group = None
        self.bindings.end()
        self.conditions.stop()
        self.monitor.clear()
        if self.auditor is not None:
            self.auditor.clear()

    async def _decide(self) -> None:
        begun_s = time.monotonic()
        while True:
            self.changes.put_groups()
            unit = None if self.bindings.full else self._next()
            if unit is None:
                await self._until_work()
                begun_s = time.monotonic()
                continue
            self.decisions.decide(unit)
            self.queue.decided(self.now_s())
            if time.monotonic() - begun_s >= _SLICE_S:
                await asyncio.sleep(0)
                begun_s = time.monotonic()

    def _next(self) -> Unit | None:
        begun_s = time.perf_counter()
        unit = self.queue.pop(self.now_s())
        if unit is not None:
            self.figures.taken(time.perf_counter() - begun_s)
        return unit

    async def _until_work(self) -> None:
        self._wake.clear()
        # With as many bindings on the way as may be, their ends alone are worth waiting for.
        next_s = None if self.bindings.full else self.queue.next_s()
        wait_s = _LOOK_EVERY_S if next_s is None else next_s - self.now_s()
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
                self.changes.happened(Event.TIME)
            self.monitor.look()
            self.changes.say_gates()
            await asyncio.sleep(_LOOK_EVERY_S)

    # For its parts.

    def now_s(self) -> float:
        """Of the queue, which must not stand still when somebody sets the clock back."""
        return self.context.clock()

    def wake(self) -> None:
        """There may be something to decide."""
        self._wake.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """It ends with the role at the latest."""
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

    def end_unit(self, name: str) -> None:
        """Nothing of it waits any more."""
        self.monitor.ended(name)
        self.queue.remove(name)


def _defect(error: PluginError) -> None:
    _log.error("a plugin failed: please report it to who made it", error=str(error))
