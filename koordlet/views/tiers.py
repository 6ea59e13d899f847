"""Batch and mid resources on the metrics page: what the node offers, and what containers ask for.

The reference gives the unit ``byte`` to every limit and ``integer`` to every request; here it is
that of the amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlet.decision.family import Labels
from koordlet.decision.snapshot import Pod
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordlet.report import metrics as r
from koordlet.report.registry import Metrics

_UNITS = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}
"""Milli-cores are called integers."""


def publish(metrics: Metrics, allocatable: Mapping[str, int] | None, pods: Iterable[Pod]) -> None:
    """``allocatable`` None: no source knows it, so nothing is shown."""
    offered: dict[Labels, float] = {}
    for name, unit in _UNITS.items() if allocatable is not None else ():
        offered[name, unit] = float((allocatable or {}).get(name, 0))
    metrics.replace(r.NODE_RESOURCE_ALLOCATABLE, offered)
    requests: dict[Labels, float] = {}
    limits: dict[Labels, float] = {}
    for pod in pods:
        for container in pod.containers:
            asked = container.resources
            place = (pod.uid, pod.name, pod.namespace, container.id, container.name)
            for found, name, amount in (
                (requests, BATCH_CPU, asked.request_batch_cpu_milli),
                (requests, BATCH_MEMORY, asked.request_batch_memory_bytes),
                (limits, BATCH_CPU, asked.limit_batch_cpu_milli),
                (limits, BATCH_MEMORY, asked.limit_batch_memory_bytes),
            ):
                if amount is not None:
                    found[(name, _UNITS[name], *place)] = float(amount)
    metrics.replace(r.CONTAINER_RESOURCE_REQUESTS, requests)
    metrics.replace(r.CONTAINER_RESOURCE_LIMITS, limits)
