"""What rounds and jobs of the descheduler share: configuration, world, ledger."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Any, NamedTuple

import structlog

from koord_scheduler.balance.configuration import Made, make, read_configuration
from koord_scheduler.balance.controller import MigrationController
from koord_scheduler.balance.job import EVICT_TRIGGER, Job
from koord_scheduler.balance.ledger import Ledger, Taken
from koord_scheduler.balance.migration_args import EVICT_DIRECTLY
from koord_scheduler.balance.refusals import Refusals
from koord_scheduler.balance.simulation import simulation
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.daemon.controller import DESCHEDULER, Context
from koord_scheduler.daemon.descheduler.feed import Feed
from koord_scheduler.daemon.files import FileError, read_document
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.pods import Pod
from koordlet.kube.events import Subject

_MOST_SERIES = 2048
_log = structlog.get_logger()


def load(path: str) -> Made:
    """The configuration of a file in YAML or JSON; defaults where ``path`` is empty. Raises
    ArgumentError."""
    if not path:
        return make(read_configuration({}))
    try:
        document = read_document(path)
    except FileError as error:
        raise ArgumentError(str(error)) from None
    try:
        return make(read_configuration(document if document is not None else {}))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


class _Answer(NamedTuple):
    node: str | None


class Desk:
    """``instance``: what stands as creator in jobs. It is that of the lease, not of the process,
    so that a new leader goes on with the jobs of the old one."""

    def __init__(self, context: Context, configured: Made, feed: Feed) -> None:
        self.context, self.feed = context, feed
        self.configured = configured
        self.configuration = configured.configuration
        self.writes = context.writes
        options = context.options
        self.instance = f"{options.lease_namespace}/{options.lease_of(DESCHEDULER)}"
        self.ledger = context.ledger
        self.ledger.configure(self.configuration.eviction_ledger)
        self.taken: dict[str, Taken] = {}
        """Of the ledger, by name of the job, until its pod goes."""
        self.refusals = Refusals()
        self.evicted: Counter[tuple[str, str, str, str]] = Counter()
        self.controllers = [
            each.evictor
            for each in configured.profiles
            if isinstance(each.evictor, MigrationController)
        ] or [MigrationController(_default_args())]

    @property
    def controller(self) -> MigrationController:
        """Whose arguments rule jobs: that of the first profile."""
        return self.controllers[0]

    def look(self) -> World:
        """The world, for the ledger too."""
        world = self.feed.world()
        own, loop, thread = simulation(world), asyncio.get_running_loop(), threading.get_ident()

        def next_node(pod: Pod) -> str | None:
            """Rounds ask from a thread of theirs, and the scheduler is the loop's."""
            if threading.get_ident() == thread:
                found = self._of_scheduler(pod)
            elif self.context.placing.next_node is not None:
                answer: Future[_Answer | None] = Future()
                loop.call_soon_threadsafe(lambda: answer.set_result(self._of_scheduler(pod)))
                found = answer.result()
            else:
                found = None
            return own(pod) if found is None else found.node

        self.ledger.simulate = next_node
        return world

    def _of_scheduler(self, pod: Pod) -> _Answer | None:
        """None where it does not lead in this process, or does not know."""
        next_node = self.context.placing.next_node
        if next_node is None:
            return None
        try:
            return _Answer(next_node(pod))
        except (LookupError, *UNFORESEEN) as error:
            _log.debug("the scheduler does not know", pod=pod.key, problem=repr(error))
            return None

    def recall(self) -> None:
        """What jobs on the API server tell of evictions before this process led."""
        known = {(each.shape, each.node) for each in self.ledger.entries(self.context.wall())}
        for job in sorted(self.feed.all_jobs(), key=lambda each: each.created_s):
            node, shape, _ = job.left
            stayed = job.ended and not job.evicts
            if node and shape and not stayed and (shape, node) not in known:
                self.ledger.restore(shape, node, job.created_s, "descheduler")

    def take(self, job: Job, resident: Resident) -> str | None:
        """Of the ledger, for a job that may begin; None where it may. Those of rounds were taken
        when they were made."""
        if job.left.node:
            return None
        mode = job.spec.mode or self.controller.args.default_job_mode
        found = self.ledger.take(
            resident.pod,
            self.context.wall(),
            role=self.trigger(job),
            reserved=mode != EVICT_DIRECTLY,
        )
        if isinstance(found, str):
            return found
        self.taken[job.name] = found
        return None

    def give_back(self, name: str) -> None:
        """The job did not come about, or ended before it evicted."""
        taken = self.taken.pop(name, None)
        if taken is not None:
            self.ledger.give_back(taken)

    def tell_evicted(
        self, key: str, uid: str, node: str, trigger: str, reason: str, job: str = ""
    ) -> None:
        """Write one event at the pod itself."""
        namespace, _, name = key.partition("/")
        where = f"node {node}, job {job}" if job else f"node {node}"
        text = f"{trigger}: {reason} ({where})" if reason else f"{trigger} ({where})"
        subject = Subject("v1", "Pod", namespace, name, uid)
        self.context.events.tell(subject, "Normal", "Descheduled", text)

    def count(self, result: str, strategy: str, namespace: str, node: str) -> None:
        key = (result, strategy, namespace, node)
        if len(self.evicted) >= _MOST_SERIES and key not in self.evicted:
            key = (result, strategy, "others", "others")
        self.evicted[key] += 1

    def trigger(self, job: Job) -> str:
        return job.annotations.get(EVICT_TRIGGER, "a person")


class LedgerBook:
    """The ledger as one round asks it. ``taken``: by key of the pod."""

    def __init__(self, ledger: Ledger, role: str) -> None:
        self._ledger, self._role = ledger, role
        self.taken: dict[str, Taken] = {}

    def refusal(self, world: World, resident: Resident, *, reserved: bool) -> str | None:
        return self._ledger.refusal(resident.pod, world.now_s, reserved=reserved)

    def take(self, world: World, resident: Resident, *, reserved: bool) -> str | None:
        pod = resident.pod
        found = self._ledger.take(pod, world.now_s, role=self._role, reserved=reserved)
        if isinstance(found, str):
            return found
        self.taken[pod.key] = found
        return None

    def give_back(self, resident: Resident) -> None:
        taken = self.taken.pop(resident.pod.key, None)
        if taken is not None:
            self._ledger.give_back(taken)


def _default_args() -> Any:
    from koord_scheduler.balance.migration_args import read_migration_args

    return read_migration_args({})
