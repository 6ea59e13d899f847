"""The optimality gap in the background: how much more the best placement would have placed."""

from __future__ import annotations

import asyncio

import structlog

from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.optimum.gap import gap, sample
from koord_scheduler.plan.optimum.solver import NotSolved, solve
from koord_scheduler.services.metrics import Family, Metrics

SOLVE_S = 5.0
"""One CPU for so long at most, in each round."""
_log = structlog.get_logger()


class OptimalityGap:
    """``run`` measures each ``every_s``. ``outcome``: of the last round, in one word."""

    def __init__(self, metrics: Metrics, scheduler: Scheduler, every_s: float) -> None:
        self.value: float | None = None
        self.outcome = "none"
        self._scheduler, self._every_s, self._turn = scheduler, every_s, 0
        metrics.add(
            Family(
                "koord_scheduler_optimality_gap",
                "gauge",
                "Of what waits: the part of the best placement that greedy placement misses.",
                (),
                lambda: [] if self.value is None else [((), self.value)],
            )
        )
        metrics.add(
            Family(
                "koord_scheduler_optimality_gap_outcome",
                "gauge",
                "1 for how the last round ended: none, idle, solved, unsolved.",
                ("outcome",),
                lambda: [((self.outcome,), 1.0)],
            )
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.measure()

    async def measure(self) -> None:
        """One round. Raises nothing that a pod or a solver can cause."""
        scheduler = self._scheduler
        waiting = sorted(
            (p for p in scheduler.waiting.values() if p.key not in scheduler.cluster.claims),
            key=lambda pod: (-pod.cls.priority, pod.created_s, pod.key),
        )
        self._turn += 1
        try:
            found = sample(scheduler.parts.first, waiting, self._turn)
        except PluginError as error:
            self._end("unsolved", None, str(error))
            return
        if found is None:
            self._end("idle", 0.0)
            return
        solved = await asyncio.to_thread(solve, found.problem, SOLVE_S)
        if isinstance(solved, NotSolved):
            self._end("unsolved", None, solved.why)
        else:
            self._end("solved", gap(found, solved.bound))

    def _end(self, outcome: str, value: float | None, why: str = "") -> None:
        if why and self.outcome != outcome:
            _log.warning("the optimality gap is not known", why=why)
        self.outcome, self.value = outcome, value
