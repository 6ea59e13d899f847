"""Snapshots for the tests of evictions: samples by window, pods with what evictions look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    HOST_APPLICATION_MEMORY_USAGE,
    NODE_BE,
    NODE_CPU_USAGE,
    NODE_MEMORY_USAGE,
    POD_CPU_USAGE,
    POD_MEMORY_USAGE,
    Aggregate,
    Metric,
    Reading,
)
from koordlet.decision.plan import Decision, Victim, VictimKind
from koordlet.decision.snapshot import Application, Evicting, Pod, Resources, Snapshot
from koordlet.protocol import keys
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from tests.qos.build import node, pod, snapshot

GB = 10**9
WINDOW_S = 10


class Samples:
    """``last`` and ``average`` by kind and labels; an average that is not given is the last."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, tuple[str, ...]], float] = {}
        self.average: dict[tuple[str, tuple[str, ...]], float] = {}
        self.count = WINDOW_S

    def read(
        self,
        metric: Metric,
        labels: tuple[str, ...] = (),
        *,
        window_s: float,
        aggregate: Aggregate = Aggregate.LAST,
    ) -> Reading | None:
        key = (metric.kind, labels)
        found = self.last.get(key)
        if aggregate is Aggregate.AVG:
            found = self.average.get(key, found)
        if found is None:
            return None
        return Reading(found, 0.1, 1 if aggregate is Aggregate.LAST else self.count, window_s)


class Scene:
    """A node to be furnished; ``take`` is its snapshot."""

    def __init__(self, cpus: int = 100, memory_bytes: int = 120 * GB, **slo: Any) -> None:
        self.node = msgspec.structs.replace(node(cpus), memory_bytes=memory_bytes)
        self.slo = slo
        self.samples = Samples()
        self.pods: list[Pod] = []
        self.apps: list[Application] = []
        self.evicting = Evicting()
        self.now = 1000.0
        self.fields: dict[str, Any] = {}

    def memory(self, used: float) -> Scene:
        self.samples.last[NODE_MEMORY_USAGE.kind, ()] = used
        return self

    def cpu(self, cores: float, average: float | None = None) -> Scene:
        self.samples.last[NODE_CPU_USAGE.kind, ()] = cores
        if average is not None:
            self.samples.average[NODE_CPU_USAGE.kind, ()] = average
        return self

    def tier(self, average: tuple[int, int, int], last: tuple[int, int, int] | None) -> Scene:
        """(limit, used, request) in milli-cores."""
        names = ("real-limit", "usage", "request")
        for name, was, is_ in zip(names, average, last or average, strict=True):
            self.samples.average[NODE_BE.kind, ("cpu", name)] = was
            self.samples.last[NODE_BE.kind, ("cpu", name)] = is_
        return self

    def pod(
        self,
        uid: str,
        *,
        qos: str | None = "BE",
        kube: str = "BestEffort",
        priority: int | None = None,
        cls: PriorityClass | None = None,
        cores: float | None = None,
        memory: float | None = None,
        batch_cpu: int | None = None,
        batch_memory: int | None = None,
        enabled: str | None = "true",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Scene:
        found = dict(labels or {})
        if enabled is not None:
            found[keys.EVICTION_ENABLED.name] = enabled
        self.pods.append(
            pod(
                uid,
                qos,
                kube,
                name=uid,
                namespace="ns",
                priority=priority,
                priority_class=cls,
                labels=found,
                annotations=dict(annotations or {}),
                resources=Resources(
                    request_batch_cpu_milli=batch_cpu, request_batch_memory_bytes=batch_memory
                ),
                **fields,
            )
        )
        if cores is not None:
            self.samples.last[POD_CPU_USAGE.kind, (uid,)] = cores
        if memory is not None:
            self.samples.last[POD_MEMORY_USAGE.kind, (uid,)] = memory
        return self

    def app(
        self, app: Application, cores: float | None = None, memory: float | None = None
    ) -> Scene:
        self.apps.append(app)
        if cores is not None:
            self.samples.last[HOST_APPLICATION_CPU_USAGE.kind, (app.name,)] = cores
        if memory is not None:
            self.samples.last[HOST_APPLICATION_MEMORY_USAGE.kind, (app.name,)] = memory
        return self

    def offers(self, **amounts: int) -> Scene:
        """``batch_cpu=...``: the node's allocatable."""
        self.node = msgspec.structs.replace(
            self.node,
            allocatable={f"kubernetes.io/{k.replace('_', '-')}": v for k, v in amounts.items()},
        )
        return self

    def take(self) -> Snapshot:
        strategy = ResourceThresholdStrategy(**({"enable": True} | self.slo))
        return snapshot(
            self.node,
            pods=self.pods,
            apps=self.apps,
            spec=NodeSLOSpec(resource_used_threshold_with_be=strategy),
            metrics_=self.samples,  # type: ignore[arg-type]
            now=self.now,
            evicting=self.evicting,
            **self.fields,
        )


def of_pod(uid: str) -> Victim:
    return Victim(VictimKind.POD, uid)


def victims(decision: Decision) -> list[str]:
    return [eviction.victim.name for eviction in decision.plan.evictions]


def rules(decision: Decision) -> set[str]:
    return {note.rule for note in decision.notes}
