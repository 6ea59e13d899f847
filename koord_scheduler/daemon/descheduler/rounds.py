"""Rounds of the descheduler: at each interval the plugins look, and jobs are made of what they
want (docs/reference/central.md 10.2, 10.10)."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections import Counter, deque

import structlog

from koord_scheduler.balance.controller import DEFAULT_EVICTOR, MigrationController
from koord_scheduler.balance.job import body
from koord_scheduler.balance.round import SUCCESS, Mark, Outcome, Request, Spare, run_round
from koord_scheduler.daemon.descheduler.cordons import cordon, uncordon
from koord_scheduler.daemon.descheduler.desk import Desk, LedgerBook
from koord_scheduler.daemon.descheduler.evictions import stays
from koord_scheduler.kube.migration_shapes import JOBS
from koord_scheduler.kube.residents import PODS
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError, perhaps_done
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError

ROLE = "descheduler"
REFUSED = "refused"
"""The server said no, and the pod is there as before."""
_MOST_REASONS = 10
_log = structlog.get_logger()
_PASSING = (KubeError, CredentialsError, NotLeadingError, TooManyWritesError)


class Rounds:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._said: object = None

    async def run(self) -> None:
        """Until it is cancelled. Without an interval there is one round."""
        desk, interval_s = self._desk, self._desk.configuration.interval_s
        if not any(each.deschedule or each.balance for each in desk.configured.profiles):
            return
        while True:
            begun_s = desk.context.clock()
            await self.once()
            if not interval_s:
                return
            await asyncio.sleep(max(0.0, interval_s - (desk.context.clock() - begun_s)))

    async def once(self) -> Outcome:
        desk = self._desk
        world = desk.look()
        jobs = desk.feed.migrating(desk.feed.all_jobs(), world, passed=False)
        world = dataclasses.replace(world, leaving=frozenset(each.key for each in jobs))
        for controller in desk.controllers:
            controller.saw(jobs)
        book = LedgerBook(desk.ledger, ROLE)
        # The lease is renewed meanwhile.
        outcome = await asyncio.to_thread(
            run_round,
            world,
            desk.configured.profiles,
            desk.configuration.limits,
            selector=desk.configuration.node_selector,
            ledger=book,
            dry_run=desk.configuration.dry_run,
            held=lambda resident: desk.refusals.why(resident.pod.uid, world.now_s),
        )
        self._say(outcome)
        for refused in outcome.refused:
            pod = refused.resident
            desk.count("refused", refused.plugin, pod.namespace, pod.pod.node)
        for mark in outcome.marks:
            await self._mark(mark)
        cordoned = {each.node for each in outcome.marks if each.cordon}
        spare = deque(outcome.spare)
        for request in outcome.requests:
            result, node = await self._carry_out(request, book), request.resident.pod.node
            if result != SUCCESS and node in cordoned:
                cordoned.discard(node)
                await self._uncordon(node)
            if result == REFUSED and spare:
                spare[0].round.counts.give_back(request.resident)
                await self._instead(spare, book)
        await desk.feed.look_up()
        return outcome

    async def _instead(self, spare: deque[Spare], book: LedgerBook) -> None:
        """Limits are about evictions: another pod goes in the place of one that was refused."""
        while spare:
            round_, request = spare.popleft()
            if not await asyncio.to_thread(round_.instead, request):
                continue
            if await self._carry_out(request, book) != REFUSED:
                return
            round_.counts.give_back(request.resident)

    async def _carry_out(self, request: Request, book: LedgerBook) -> str:
        desk, resident = self._desk, request.resident
        result, name = SUCCESS, str(uuid.uuid4())
        try:
            if request.evictor == DEFAULT_EVICTOR:
                uid = resident.pod.uid
                await desk.writes.evict(resident.namespace, resident.name, uid=uid)
            else:
                made = body(
                    name,
                    resident,
                    self._controller(request).args,
                    instance=desk.instance,
                    trigger=request.plugin,
                    reason=request.reason,
                )
                desk.taken[name] = book.taken[resident.pod.key]
                await desk.writes.create(JOBS, made)
        except _PASSING as error:
            result = "error"
            desk.taken.pop(name, None)
            stayed = await self._stays(request, error)
            if stayed:
                book.give_back(resident)
            if stayed and isinstance(error, RefusedError):
                result = REFUSED
                if request.evictor == DEFAULT_EVICTOR:
                    desk.refusals.note(resident.pod.uid, desk.context.wall())
            _log.warning("eviction not begun", pod=resident.pod.key, problem=str(error))
        counted = result if result == SUCCESS else "error"
        desk.count(counted, request.plugin, resident.namespace, resident.pod.node)
        if result == SUCCESS and request.evictor == DEFAULT_EVICTOR:
            # A job tells of it when its pod goes.
            pod = resident.pod
            desk.tell_evicted(pod.key, pod.uid, pod.node, request.plugin, request.reason)
        return result

    async def _stays(self, request: Request, error: Exception) -> bool:
        if request.evictor != DEFAULT_EVICTOR:
            return not perhaps_done(error)
        pod = request.resident.pod
        return await stays(self._desk.context.client, error, pod.key, pod.uid)

    async def _uncordon(self, node: str) -> None:
        context = self._desk.context
        try:
            await uncordon(context.client, self._desk.writes, node, context.wall())
        except _PASSING as error:
            _log.warning("not uncordoned", node=node, problem=str(error))

    def _controller(self, request: Request) -> MigrationController:
        for each in self._desk.configured.profiles:
            if each.name == request.profile and isinstance(each.evictor, MigrationController):
                return each.evictor
        return self._desk.controller

    async def _mark(self, mark: Mark) -> None:
        writes = self._desk.writes
        try:
            if mark.cordon:
                await cordon(writes, mark.node, self._desk.context.wall())
            else:
                namespace, _, name = mark.pod.partition("/")
                head = {"annotations": dict(mark.annotations)}
                await writes.patch(PODS, name, {"metadata": head}, namespace)
        except _PASSING as error:
            _log.warning("not marked", object=mark.node or mark.pod, problem=str(error))

    def _say(self, outcome: Outcome) -> None:
        """Once, until something else happens."""
        reasons = Counter(each.why for each in outcome.refused)
        said = (len(outcome.requests), tuple(sorted(reasons.items())), outcome.error)
        if said == self._said:
            return
        self._said = said
        if outcome.error:
            _log.warning("round ended early", problem=outcome.error)
        if outcome.requests or reasons:
            why = "; ".join(f"{n} x {text}" for text, n in reasons.most_common(_MOST_REASONS))
            _log.info("round", evictions=len(outcome.requests), refused=why)
