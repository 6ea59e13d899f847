"""The descheduler as a part of the companion."""

from __future__ import annotations

import asyncio

from koord_scheduler.daemon.controller import Context, Controller
from koord_scheduler.daemon.descheduler.desk import Desk, load
from koord_scheduler.daemon.descheduler.feed import Feed
from koord_scheduler.daemon.descheduler.jobs import Jobs
from koord_scheduler.daemon.descheduler.rounds import Rounds
from koord_scheduler.services.metrics import Family


def make(context: Context) -> Controller:
    """Raises ArgumentError where the configuration cannot be read."""
    return Descheduler(context)


class Descheduler:
    def __init__(self, context: Context) -> None:
        self._context = context
        configured = load(context.options.extra.get("descheduler_config", ""))
        self.desk = Desk(context, configured, Feed(context))
        self.rounds, self.jobs = Rounds(self.desk), Jobs(self.desk)
        self._declare_metrics()

    async def run(self) -> None:
        """Until it is cancelled."""
        # Before anybody asks whether a pod may go.
        self.desk.recall()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.jobs.run())
            group.create_task(self.rounds.run())

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
        ):
            self._context.metrics.add(family)
