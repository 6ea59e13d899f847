"""Figures of decisions and bindings (docs/reference/central.md 9.3)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.plugin import DeviceShare
from koord_scheduler.plan import gangs
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.jobs import JobPreemption, NoJobPreemption
from koord_scheduler.plan.queue import State
from koord_scheduler.services.metrics import Family, Metrics, exponential

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.scheduler import Scheduler

GANG_SUCCEEDED, GANG_GONE = "gang_is_succeed", "gang_is_nil"
GANG_ATTEMPTED = "all_pending_pods_is_already_attempted"
_QUEUES = {State.WAITING: "unschedulable"}
"""As kube-scheduler calls them, where that is not the name of the state."""
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_CYCLE_S = (0.1, 0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 45, 60, 120)
_NODES = exponential(1, 2, 24)
NOT_ELIGIBLE = "not eligible"
_MOST_CHARACTERS = 256


class Figures:
    def __init__(self, metrics: Metrics, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods and gangs, by result and profile.",
            "result",
            "profile",
        )
        self._decisions = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time of a decision.", _SECONDS
        )
        self._bound = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From creation of a pod to its node.",
            _SECONDS,
        )
        self._evaluated = metrics.histogram(
            "scheduler_pod_scheduling_evaluated_nodes", "Nodes that a pod was tried on.", _NODES
        )
        self._feasible = metrics.histogram(
            "scheduler_pod_scheduling_feasible_nodes", "How many of them it fits on.", _NODES
        )
        self._next = metrics.histogram(
            "scheduler_next_pod_delete_from_queue_latency",
            "Seconds to take the next pod or gang from the queue.",
            exponential(0.00001, 2, 24),
        )
        self._cycles = metrics.histogram(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "Time of a decision for a gang, with what makes room for it.",
            _CYCLE_S,
            "reason",
            "job_size",
        )
        self._preemptions = metrics.histogram(
            "scheduler_job_preemption_duration_seconds",
            "Time to find room for a gang by evictions.",
            exponential(0.001, 2, 20),
            "jobName",
            "result",
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
            self._bound.observe(max(0.0, self._scheduler.context.wall() - pod.created_s))

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self._decisions.observe(time.perf_counter() - begun_s)

    def looked_at(self, outcome: Placement | Failure) -> None:
        """On how many nodes the pod was tried, and fits by what is known."""
        if isinstance(outcome, Placement):
            self._evaluated.observe(len(self._scheduler.cluster.row))
            self._feasible.observe(outcome.feasible)
        elif not outcome.refused_by:
            self._evaluated.observe(outcome.nodes)
            self._feasible.observe(outcome.untried)

    def taken(self, seconds: float) -> None:
        self._next.observe(seconds)

    def cycle(self, reason: str, members: int, seconds: float) -> None:
        self._cycles.observe(seconds, reason, job_size(members))

    def job_preemption(
        self, group: str, found: JobPreemption | NoJobPreemption, seconds: float
    ) -> None:
        self._preemptions.observe(seconds, group[:_MOST_CHARACTERS], _result(found))


def declare_devices(metrics: Metrics, devices: DeviceShare, cluster: Cluster) -> None:
    metrics.add(
        Family(
            "scheduler_secondary_device_not_well_planned",
            "gauge",
            "1 for nodes that are labelled as well planned, where a pod found no secondary device.",
            ("node_name",),
            lambda: [((n,), 1.0) for n in sorted(devices.not_well_planned & cluster.row.keys())],
        )
    )


def job_size(members: int) -> str:
    """The label for so many members of a gang."""
    if members <= 0:
        return "0"
    if members > 1000:
        return "1000+"
    first = (members - 1) // 100 * 100
    return f"{first + 1}-{first + 100}"


def _result(found: JobPreemption | NoJobPreemption) -> str:
    """One of a few, whatever the words say of nodes."""
    if isinstance(found, JobPreemption):
        return "preempt success"
    if found.words.startswith(NOT_ELIGIBLE):
        return NOT_ELIGIBLE
    return "preemption not helpful"


def _is_gang(name: str) -> bool:
    return name.startswith(gangs.UNIT)
