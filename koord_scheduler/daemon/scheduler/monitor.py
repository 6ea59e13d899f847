"""Who takes too long (docs/reference/central.md 9.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from koord_scheduler.daemon.scheduler.watching import MonitorLimits
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.queue import Unit
from koord_scheduler.services.metrics import Metrics

_log = structlog.get_logger()


class _Begun(NamedTuple):
    at_s: float
    profile: str


class Monitor:
    """Of attempts, from the decision to the answer to the binding. ``waiting``: pods by key.
    ``clock`` is monotonic."""

    def __init__(
        self,
        metrics: Metrics,
        limits: MonitorLimits,
        waiting: Mapping[str, Pod],
        clock: Callable[[], float],
    ) -> None:
        self._limits, self._waiting, self._clock = limits, waiting, clock
        self._begun: dict[str, _Begun] = {}
        self._told: set[str] = set()
        self._looked_s = clock()
        self._timeouts = metrics.counter(
            "scheduler_scheduling_timeout",
            "Attempts that take longer than --scheduling-timeout, each time one is looked at.",
            "profile",
        )

    def began(self, unit: Unit) -> None:
        pod = self._waiting.get(unit.pods[0]) if unit.pods else None
        self._begun[unit.name] = _Begun(self._clock(), pod.scheduler if pod is not None else "")

    def ended(self, name: str) -> None:
        begun = self._begun.pop(name, None)
        if begun is not None:
            self._weigh(name, begun, self._clock())
            self._told.discard(name)

    def clear(self) -> None:
        """Another process leads."""
        self._begun.clear()
        self._told.clear()

    def look(self) -> None:
        """Call it often: it looks when it is time."""
        now_s = self._clock()
        if now_s - self._looked_s < self._limits.period_s:
            return
        self._looked_s = now_s
        for name, begun in self._begun.items():
            self._weigh(name, begun, now_s)

    def _weigh(self, name: str, begun: _Begun, now_s: float) -> None:
        took_s = now_s - begun.at_s
        if took_s <= self._limits.timeout_s:
            return
        self._timeouts[(begun.profile,)] += 1
        if name not in self._told:
            self._told.add(name)
            _log.warning(
                "!!!CRITICAL TIMEOUT!!! scheduling pod", unit=name, seconds=round(took_s, 1)
            )
