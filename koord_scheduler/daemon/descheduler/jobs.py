"""PodMigrationJobs from arbitration to their end (docs/reference/central.md 10.9 to 10.13)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from koord_scheduler.balance.arbitration import Outcome, arbitrate
from koord_scheduler.balance.job import (
    EVICT_REASON,
    FAILED,
    LEDGER,
    PASSED,
    PENDING,
    Job,
    left_by,
    with_phase,
)
from koord_scheduler.balance.ledger import shape_of
from koord_scheduler.balance.migration import (
    AGAIN_S,
    Action,
    CreateReservation,
    DeleteReservation,
    Evict,
    Facts,
    OrderReservation,
    PatchSpec,
    Step,
    advance,
    failed,
    held_back,
)
from koord_scheduler.balance.rates import TokenBucket
from koord_scheduler.balance.reservation import ORDER
from koord_scheduler.daemon.descheduler.cordons import Drains
from koord_scheduler.daemon.descheduler.desk import Desk
from koord_scheduler.daemon.descheduler.evictions import evict, policy_of, stays
from koord_scheduler.daemon.descheduler.facts import facts_of
from koord_scheduler.kube.migration_shapes import JOBS, PodMigrationJob
from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.reservation_shapes import RESERVATIONS
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError, perhaps_done
from koordlet.kube.backoff import Backoff
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Change
from koordlet.protocol.objects.migration import PodMigrationJobStatus

SCAVENGE_S = 60.0
_LATE_S = 300.0
_NO_TTL_S = 1800.0
_log = structlog.get_logger()


@dataclass
class _Refused:
    backoff: Backoff
    until_s: float = 0.0


class _Reserving(NamedTuple):
    """Name of a Reservation, and uid of the job that it is made for."""

    reservation: str
    uid: str


class Jobs:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        args = desk.controller.args
        self._args = args
        self._rate = TokenBucket(args.evictions_per_s, args.evict_burst)
        self._sent: set[str] = set()
        """Jobs whose eviction this process has sent."""
        self._refused: dict[str, _Refused] = {}
        """By name: jobs whose eviction the server refused. What is written about them comes back by
        the watch at once, and must not send the next attempt."""
        self._unsure: dict[str, str | None] = {}
        """By uid: jobs that may or may not have the word that they pass, and what they take away.
        """
        self._reserving: dict[str, _Reserving] = {}
        """Job -> Reservation that this process makes for it, until the job names that itself."""
        self._told: dict[str, str] = {}
        """Why each waiting job waits, as it was last said."""
        self._queue = Queue(
            self._one,
            workers=args.max_concurrent_reconciles,
            on_error=lambda key, error: _log.debug("job waits", job=key, problem=str(error)),
            retry=_wait_s,
        )
        client, writes = desk.context.client, desk.writes
        self._drains = Drains(client, writes, lambda node: self._queue.add(f"node/{node}"))

    async def run(self) -> None:
        """Until it is cancelled."""
        end = self._desk.feed.jobs.listen(self._on_jobs)
        try:
            jobs = self._desk.feed.all_jobs()
            names = {each.name for each in jobs}
            self._sent &= names
            self._refused = {name: each for name, each in self._refused.items() if name in names}
            self._told = {name: kind for name, kind in self._told.items() if name in names}
            for each in jobs:
                self._add(each)
            for name in self._reserving.keys() - names:
                self._queue.add(name)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run())
                group.create_task(self._arbitrate())
                group.create_task(self._scavenge())
        finally:
            end()

    def _on_jobs(self, changes: tuple[Change[PodMigrationJob], ...]) -> None:
        for change in changes:
            name = change.key.name
            if change.new is not None:
                self._add(change.new.job)
                self._note_end(change.old.job if change.old is not None else None, change.new.job)
                continue
            if name not in self._sent:
                self._desk.give_back(name)
            self._queue.drop(name)
            self._sent.discard(name)
            self._told.pop(name, None)
            self._refused.pop(name, None)
            old = change.old.job if change.old is not None else None
            if name in self._reserving:
                self._queue.add(name)
            if old is not None and old.ours(self._desk.instance):
                self._drains.look_at(old, gone=True)
            if old is not None and old.reservation and old.ours(self._desk.instance):
                # Its reservation goes with it.
                self._queue.add(f"reservation/{old.reservation}")

    def _note_end(self, old: Job | None, job: Job) -> None:
        if not job.ended or job.evicts:
            return
        self._desk.give_back(job.name)
        tried = job.condition("Eviction")
        if tried is not None and tried.reason == "FailedEvict" and not (old and old.ended):
            # Others come before the next job for this pod.
            self._desk.refusals.note(job.pod_uid, self._desk.context.wall())

    def _add(self, job: Job) -> None:
        if self._ours(job) and (job.passed or job.phase != PENDING):
            self._queue.add(job.name)
        if job.ours(self._desk.instance):
            self._drains.look_at(job)

    def _ours(self, job: Job) -> bool:
        return job.ours(self._desk.instance) and not job.ended

    # Arbitration.

    async def _arbitrate(self) -> None:
        while True:
            try:
                await self.arbitrate()
            except (KubeError, CredentialsError, NotLeadingError) as error:
                _log.debug("arbitration waits", problem=str(error))
            await asyncio.sleep(self._args.arbitration_s)

    async def arbitrate(self) -> None:
        desk = self._desk
        jobs = desk.feed.all_jobs()
        there = {each.uid for each in jobs if not each.ended}
        desk.feed.passed &= there
        for uid in self._unsure.keys() - there:
            del self._unsure[uid]
        waiting = [e for e in jobs if e.phase == PENDING and not e.passed and self._ours(e)]
        for job in waiting:
            if job.uid in self._unsure:
                await self._pass(job, self._unsure[job.uid])
        waiting = [each for each in waiting if each.uid not in desk.feed.passed]
        if not waiting:
            return
        world = desk.look()
        migrating = desk.feed.migrating(jobs, world, passed=True)
        for ruling in arbitrate(waiting, world, self._args, migrating, desk.take):
            job = ruling.job
            if ruling.outcome is Outcome.WAITS:
                await self._tell_waiting(job, ruling.why)
            elif ruling.outcome is Outcome.FAILED:
                status = with_phase(job.status, FAILED, "ForbiddenMigratePod", ruling.why)
                await self._write_status(job, status)
            else:
                resident = world.by_key.get(job.pod_key)
                await self._pass(job, left_by(resident) if resident is not None else None)
        await desk.feed.look_up()

    async def _pass(self, job: Job, left: str | None) -> None:
        """Where the server does not answer nobody knows whether it has the word: it counts, and is
        said again."""
        desk, uid = self._desk, job.uid
        notes = {PASSED: "true"} if left is None else {PASSED: "true", LEDGER: left}
        head = {"uid": uid, "annotations": notes}
        desk.feed.passed.add(uid)
        self._unsure[uid] = left
        try:
            await desk.writes.patch(JOBS, job.name, {"metadata": head})
        except (KubeError, CredentialsError, NotLeadingError) as error:
            if perhaps_done(error):
                raise
            desk.feed.passed.discard(uid)
            desk.give_back(job.name)
            del self._unsure[uid]
            # What the server refuses of one job does not hold up the others.
            if not isinstance(error, RefusedError):
                raise
        else:
            del self._unsure[uid]

    async def _ask_again(self, job: Job) -> None:
        """It passed for a pod that was on no node, or not known here."""
        head = {"uid": job.uid, "annotations": {PASSED: None, LEDGER: None}}
        await self._desk.writes.patch(JOBS, job.name, {"metadata": head})
        self._desk.feed.passed.discard(job.uid)
        self._desk.give_back(job.name)

    async def _tell_waiting(self, job: Job, why: str) -> None:
        """In the status, where the reason changed: others' jobs come and go all the time."""
        kind = why.partition(" ")[2]
        if self._told.get(job.name) != kind:
            self._told[job.name] = kind
            status = replace(held_back(job.status, why), phase=PENDING)
            await self._write_status(job, status)

    # One job.

    async def _one(self, name: str) -> float | None:
        if name.startswith("reservation/"):
            await self._delete_reservation(name.partition("/")[2])
            return None
        if name.startswith("node/"):
            await self._drains.give_back(name.partition("/")[2])
            return None
        found = self._desk.feed.jobs.get(name)
        reserving = self._reserving.get(name)
        if reserving is not None and (found is None or found.job.uid != reserving.uid):
            await self._delete_reservation(reserving.reservation)
            del self._reserving[name]
        if found is None:
            return None
        job = found.job
        if job.reservation:
            self._reserving.pop(name, None)
        if not self._ours(job):
            return None
        facts = await facts_of(self._desk, job)
        if job.phase == PENDING and facts.pod is not None and facts.pod.node != job.left.node:
            await self._ask_again(job)
            return None
        step = self._again(job, facts, advance(job, facts, self._args, self._desk.context.wall()))
        if any(isinstance(each, Evict) for each in step.actions):
            refused = self._refused.get(name)
            left_s = refused.until_s - self._desk.context.clock() if refused is not None else 0.0
            if left_s > 0:
                return left_s
            wait_s = self._may_evict()
            if wait_s is not None:
                if wait_s >= AGAIN_S:
                    text = "waits for its turn: evictQPS and evictBurst hold it back"
                    await self._write_status(job, held_back(job.status, text))
                return wait_s
            # The intent first: who comes after us knows that the pod did not go by itself.
            await self._write_status(job, step.status)
            job = replace(job, status=step.status)
        for action in step.actions:
            try:
                await self._act(job, facts, action)
            except (KubeError, CredentialsError) as error:
                now_s = self._desk.context.wall()
                status = failed(step, action, str(error), now_s)
                if status is not None:
                    await self._write_status(job, status)
                raise
        if step.status != job.status:
            await self._write_status(job, step.status)
        return step.again_s

    def _again(self, job: Job, facts: Facts, step: Step) -> Step:
        """A process that ended between its word and its deed left a pod that nobody evicts."""
        pod, known = facts.pod, job.condition("Eviction")
        if (
            pod is None
            or known is None
            or known.reason != "Evicting"
            or job.name in self._sent
            or step.actions
            or step.again_s is None
            or (job.pod_uid and pod.uid != job.pod_uid)
            or pod.tree.get("metadata", {}).get("deletionTimestamp")
        ):
            return step
        return step._replace(actions=(Evict(pod.uid),))

    def _may_evict(self) -> float | None:
        """None, or when to ask again."""
        if self._rate.take(self._desk.context.clock()):
            return None
        return 1.0 / self._args.evictions_per_s

    async def _act(self, job: Job, facts: Facts, action: Action) -> None:
        desk = self._desk
        match action:
            case CreateReservation(body):
                self._reserving[job.name] = _Reserving(body["metadata"]["name"], job.uid)
                try:
                    await desk.writes.create(RESERVATIONS, body)
                except RefusedError as error:
                    if not error.exists:
                        del self._reserving[job.name]
                        raise
            case PatchSpec(changes):
                await desk.writes.patch(JOBS, job.name, {"spec": changes})
            case OrderReservation(name, order_ms):
                head = {"labels": {ORDER: str(order_ms)}}
                await desk.writes.patch(RESERVATIONS, name, {"metadata": head})
            case DeleteReservation(name):
                await self._delete_reservation(name)
            case Evict():
                await self._evict(job, facts)

    async def _evict(self, job: Job, facts: Facts) -> None:
        assert facts.pod is not None
        desk, tree = self._desk, facts.pod.tree
        labels = tree["metadata"].get("labels", {})
        policy = policy_of(labels, job, self._args)
        trigger, namespace = desk.trigger(job), tree["metadata"]["namespace"]
        now_s = desk.context.wall()
        try:
            await evict(desk.writes, tree, policy, job, now_s)
        except (KubeError, CredentialsError) as error:
            desk.count("error", trigger, namespace, facts.pod.node)
            if await stays(desk.context.client, error, job.pod_key, facts.pod.uid):
                self._rate.give_back()
            refused = self._refused.setdefault(job.name, _Refused(Backoff(random.random, 1.0)))
            refused.until_s = desk.context.clock() + refused.backoff.next_s()
            raise
        self._sent.add(job.name)
        self._refused.pop(job.name, None)
        desk.taken.pop(job.name, None)
        world = desk.feed.world()
        resident = world.by_key.get(job.pod_key)
        if resident is not None:
            for controller in desk.controllers:
                controller.limiters.took(world, resident)
            desk.ledger.restore(shape_of(resident.pod), facts.pod.node, now_s, trigger)
        reason, pod = job.annotations.get(EVICT_REASON, ""), facts.pod
        desk.tell_evicted(job.pod_key, pod.uid, pod.node, trigger, reason, job.name)
        _log.info("pod evicted", pod=job.pod_key, node=facts.pod.node, job=job.name, by=policy)

    async def _delete_reservation(self, name: str) -> None:
        try:
            await self._desk.writes.delete(RESERVATIONS, name)
        except RefusedError as error:
            if not error.missing:
                raise

    async def _write_status(self, job: Job, status: PodMigrationJobStatus) -> None:
        found = self._desk.feed.jobs.get(job.name)
        if status == job.status or found is None or found.metadata.uid != job.uid:
            return
        body = msgspec.to_builtins(status)
        # What became empty must be said in a merge patch.
        for field in ("phase", "status", "reason", "message"):
            body[field] = getattr(status, field)
        try:
            await self._desk.writes.set_status(JOBS, found.metadata, body)
        except RefusedError as error:
            if not error.gone:
                raise

    # What nobody needs any more.

    async def _scavenge(self) -> None:
        while True:
            await asyncio.sleep(SCAVENGE_S)
            await self.scavenge()

    async def scavenge(self) -> None:
        now_s = self._desk.context.wall()
        for job in self._desk.feed.all_jobs():
            lasts_s = job.ttl_s + _LATE_S if job.ttl_s else _NO_TTL_S
            if now_s - job.created_s < lasts_s or not job.ours(self._desk.instance):
                continue
            # One that cannot be deleted does not hold up the others.
            with contextlib.suppress(KubeError, CredentialsError, NotLeadingError):
                if job.reservation:
                    await self._delete_reservation(job.reservation)
                await self._desk.writes.delete(JOBS, job.name, uid=job.uid)


def _wait_s(error: Exception) -> float | None:
    if isinstance(error, TooManyWritesError):
        return error.wait_s
    return AGAIN_S if isinstance(error, NotLeadingError) else None
