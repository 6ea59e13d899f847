"""The descheduler as a part of the companion, with a lease of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid

import structlog

from koord_scheduler.daemon.controller import Context, Controller
from koord_scheduler.daemon.descheduler.desk import Desk, load
from koord_scheduler.daemon.descheduler.feed import Feed
from koord_scheduler.daemon.descheduler.jobs import Jobs
from koord_scheduler.daemon.descheduler.rounds import Rounds
from koord_scheduler.services.metrics import Family
from koordlet.kube.lease import DEADLINE_S, Leadership

_log = structlog.get_logger()


def make(context: Context) -> Controller:
    """Raises ArgumentError where the configuration cannot be read."""
    return Descheduler(context)


class Descheduler:
    """It leads by its own lease, so that several processes may share roles as they like."""

    def __init__(self, context: Context) -> None:
        self._context = context
        configured = load(context.options.extra.get("descheduler_config", ""))
        self._elect = (
            context.options.elect and configured.configuration.leader_election.leader_elect
        )
        self._leadership: Leadership | None = None
        self._changed = asyncio.Event()
        self.desk = Desk(context, configured, Feed(context), self.leads)
        self.rounds, self.jobs = Rounds(self.desk), Jobs(self.desk)
        self._declare_metrics()

    def leads(self) -> bool:
        if not self._elect:
            return True
        return self._leadership is not None and self._leadership.held()

    async def run(self) -> None:
        """Until it is cancelled."""
        if not self._elect:
            await self._lead()
            return
        election = self.desk.configuration.leader_election
        self._leadership = Leadership(
            self._context.client,
            election.resource_namespace,
            election.resource_name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            self._on_lead,
            deadline_s=DEADLINE_S,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leadership.run())
            group.create_task(self._while_leading())

    def _on_lead(self, leads: bool) -> None:
        _log.info("descheduler leads" if leads else "descheduler no longer leads")
        self._changed.set()

    async def _while_leading(self) -> None:
        task: asyncio.Task[None] | None = None
        waiting: asyncio.Task[bool] | None = None
        try:
            while True:
                if self.leads() and task is None:
                    task = asyncio.create_task(self._lead())
                elif not self.leads() and task is not None:
                    await _ended(task)
                    task = None
                self._changed.clear()
                waiting = asyncio.create_task(self._changed.wait())
                both = {waiting} if task is None else {waiting, task}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if task is not None and task.done():
                    task.result()
                await _ended(waiting)
        finally:
            for each in (task, waiting):
                if each is not None:
                    await _ended(each)

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.jobs.run())
            group.create_task(self.rounds.run())
            await asyncio.Event().wait()

    def _declare_metrics(self) -> None:
        desk = self.desk
        for family in (
            Family(
                "descheduler_pods_evicted",
                "counter",
                "Pods that plugins and jobs wanted to go, by result.",
                ("result", "strategy", "namespace", "node"),
                lambda: [(key, float(n)) for key, n in desk.evicted.items()],
            ),
            Family(
                "koord_descheduler_ledger_refusals_total",
                "counter",
                "Evictions that the ledger refused: the pod would return, a pair would repeat, "
                "the roll-out is not there yet, the ledger is full.",
                ("why",),
                lambda: [((key,), float(n)) for key, n in desk.ledger.refusals.items()],
            ),
            Family(
                "koord_descheduler_leader",
                "gauge",
                "1 where this process leads as descheduler.",
                (),
                lambda: [((), float(self.leads()))],
            ),
        ):
            self._context.metrics.add(family)


async def _ended(task: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[bool]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(task, return_exceptions=True)
