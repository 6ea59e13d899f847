"""Figures of the scheduler, and who takes too long (spec/central.md 9.3, 9.4)."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.queue import State
from koord_scheduler.services.metrics import Family, Metrics

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.scheduler import Scheduler

TIMEOUT_S = 30.0
EVERY_S = 10.0
_QUEUES = {State.WAITING: "unschedulable"}
"""As kube-scheduler calls them, where that is not the name of the state."""
_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_log = structlog.get_logger()


class Durations:
    """A histogram of Prometheus as three families of numbers."""

    def __init__(self, metrics: Metrics, name: str, about: str) -> None:
        self._counts: Counter[float] = Counter()
        self.sum_s, self.count = 0.0, 0
        metrics.add(
            Family(
                f"{name}_bucket",
                "counter",
                about,
                ("le",),
                lambda: [((_bound(each),), float(self._counts[each])) for each in _ALL],
            )
        )
        for suffix, read in (
            ("sum", lambda: [((), self.sum_s)]),
            ("count", lambda: [((), float(self.count))]),
        ):
            metrics.add(Family(f"{name}_{suffix}", "counter", about, (), read))

    def took(self, seconds: float) -> None:
        self.sum_s += seconds
        self.count += 1
        for bound in _ALL:
            if seconds <= bound:
                self._counts[bound] += 1


_ALL = (*_BOUNDS_S, float("inf"))


def _bound(value: float) -> str:
    return "+Inf" if value == float("inf") else f"{value:g}"


class Figures:
    def __init__(self, metrics: Metrics, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._begun: dict[str, float] = {}
        self._told: set[str] = set()
        self._looked_s = 0.0
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods and gangs, by result and profile.",
            "result",
            "profile",
        )
        self._timeouts = metrics.counter(
            "scheduler_scheduling_timeout",
            "Attempts that took longer than 30 s, by profile.",
            "profile",
        )
        self._decisions = Durations(
            metrics, "scheduler_scheduling_algorithm_duration_seconds", "Time of a decision."
        )
        self._bound = Durations(
            metrics,
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From creation of a pod to its node.",
        )
        metrics.add(
            Family(
                "scheduler_pending_pods",
                "gauge",
                "Pods and gangs that wait, by queue.",
                ("queue",),
                lambda: [
                    ((_QUEUES.get(state, state.name.lower()),), float(n))
                    for state, n in scheduler.queue.counts().items()
                ],
            )
        )
        metrics.add(
            Family(
                "scheduler_waiting_gang_group_number",
                "gauge",
                "Gang groups that wait for nodes.",
                (),
                lambda: [((), float(sum(map(_is_gang, scheduler.queue.names()))))],
            )
        )

    def counts(self, result: str, profile: str) -> None:
        self._attempts[(result, profile)] += 1

    def bound(self, pod: Pod) -> None:
        if pod.created_s:
            self._bound.took(max(0.0, self._scheduler.context.wall() - pod.created_s))

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self._decisions.took(time.perf_counter() - begun_s)

    def began(self, name: str) -> None:
        self._begun[name] = self._scheduler.context.clock()

    def ended(self, name: str) -> None:
        self._begun.pop(name, None)
        self._told.discard(name)

    def ended_all(self) -> None:
        self._begun.clear()
        self._told.clear()

    def look(self) -> None:
        """Every 10 s: whose binding does not come to an end. Each is told once."""
        now_s = self._scheduler.context.clock()
        if now_s - self._looked_s < EVERY_S:
            return
        self._looked_s = now_s
        for name, begun_s in self._begun.items():
            if now_s - begun_s > TIMEOUT_S and name not in self._told:
                self._told.add(name)
                unit = self._scheduler.queue.unit(name)
                first = unit.pods[0] if unit is not None and unit.pods else name
                pod = self._scheduler.waiting.get(first)
                self._timeouts[(pod.scheduler if pod is not None else "",)] += 1
                _log.warning("!!!CRITICAL TIMEOUT!!! scheduling pod", unit=name)


def _is_gang(name: str) -> bool:
    return name.startswith("gang:")
