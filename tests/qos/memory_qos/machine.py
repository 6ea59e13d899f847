"""Nodes, pods and NodeSLOs for the tests of memory QoS."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlet.decision.metrics import NODE_MEMORY_USAGE_WITH_PAGE_CACHE
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Container, Node, Pod, Resources, Snapshot
from koordlet.protocol.slo import MemoryQOS, NodeSLOSpec, ResourceQOS, ResourceQOSStrategy
from koordlet.protocol.slo_defaults import effective
from koordlet.qos.memory_qos import strategy as memory_qos
from tests.qos.build import Kernel, Metrics, node, pod, snapshot

R = Resource
MIB = 1 << 20
GIB = 1 << 30
FLOORS = ("memory.min", "memory.low")
STOCK = (*FLOORS, "memory.high", "memory.oom.group", "memory.reclaim")
VENDOR = tuple(
    str(resource)
    for resource in R
    if resource.startswith("memory.")
    and resource not in ("memory.stat", "memory.numa_stat", "memory.pressure")
)
"""All that Anolis kernels have; they have no memory.reclaim."""


def machine(features: tuple[str, ...] = STOCK, memory_bytes: int = 16 * GIB) -> Node:
    every = {*VENDOR, "memory.reclaim"}
    found = {name: Capability(name, name in features, "tried", "cost") for name in sorted(every)}
    return msgspec.structs.replace(node(4, capabilities=found), memory_bytes=memory_bytes)


def slo(**classes: MemoryQOS) -> NodeSLOSpec:
    """``slo(be=MemoryQOS(enable=True))``, defaults merged."""
    blocks = {f"{name}_class": ResourceQOS(memory_qos=qos) for name, qos in classes.items()}
    return effective(NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(**blocks)))


def on(**fields: Any) -> MemoryQOS:
    return MemoryQOS(enable=True, **fields)


def sized(
    uid: str,
    qos: str | None,
    kube: str,
    *amounts: tuple[int | None, int],
    batch: bool = False,
    annotation: str | None = None,
) -> Pod:
    """``amounts``: (request, limit) of each container, in bytes; None = not told."""

    def resources(request: int | None, limit: int | None) -> Resources:
        if batch:
            return Resources(request_batch_memory_bytes=request, limit_batch_memory_bytes=limit)
        return Resources(request_memory_bytes=request, limit_memory_bytes=limit)

    base = pod(uid, qos, kube)
    containers = tuple(
        Container(f"c{i}", f"{base.cgroup}/c{i}", f"c{i}", resources=resources(*each))
        for i, each in enumerate(amounts)
    )
    requests = [request for request, _ in amounts]
    limits = [limit for _, limit in amounts]
    total = None if None in requests else sum(r for r in requests if r is not None)
    fields: dict[str, Any] = {
        "containers": containers,
        "resources": resources(total, sum(limits) if all(limits) else None),
    }
    if annotation is not None:
        fields["annotations"] = {"koordinator.sh/memoryQOS": annotation}
    return msgspec.structs.replace(base, **fields)


def taken(*fields: Any, **more: Any) -> Snapshot:
    """A snapshot whose kernel knows no file unless the test says so."""
    more.setdefault("in_force", Kernel())
    return snapshot(*fields, **more)


def decide(snap: Snapshot, memory: memory_qos.MemoryQosState | None = None) -> Decision:
    return memory_qos.decide(snap, memory or memory_qos.MemoryQosState())


def values(plan: Plan) -> dict[tuple[str, str], object]:
    return {(s.cgroup, str(s.resource)): s.value for s in plan.settings}


def of(plan: Plan, resource: str) -> dict[str, object]:
    """Cgroup -> value."""
    return {cgroup: value for (cgroup, name), value in values(plan).items() if name == resource}


def free(size_bytes: int, total_bytes: int) -> Metrics:
    """Metrics that say how much of the node is free."""
    return Metrics({(NODE_MEMORY_USAGE_WITH_PAGE_CACHE.kind, ()): total_bytes - size_bytes})


def pressure(total_us: int) -> str:
    kinds = ("some", "full")
    return "".join(f"{k} avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\n" for k in kinds)


def stat(refault_pages: int, stolen_pages: int = 0) -> str:
    counters = {"workingset_refault_anon": 0, "workingset_refault_file": refault_pages}
    counters |= {"pgscan": 2 * stolen_pages, "pgsteal": stolen_pages}
    return "anon 0\nfile 0\n" + "".join(f"{name} {n}\n" for name, n in counters.items())
