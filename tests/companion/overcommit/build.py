"""Nodes, pods and reports for tests, made of API objects the way a watch makes them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koord_scheduler.model import reading, wire
from koord_scheduler.model.facts import Inputs, MetricFacts, NodeFacts, PodFacts, TopologyFacts
from koord_scheduler.overcommit.configuration import Configuration, load
from koord_scheduler.overcommit.noderesource import Plan, plan

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00Z"
RESERVATION = "node.koordinator.sh/reservation"
PRIORITY = {"prod": 9500, "mid": 7500, "batch": 5500, "free": 3500}
CLASS_OF_NAME = {name: f"koord-{name}" for name in PRIORITY}


def node(
    cpu: Any = 100,
    memory: Any = "120G",
    allocatable: tuple[Any, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, Any] | None = None,
    extended: dict[str, Any] | None = None,
) -> NodeFacts:
    capacity = {"cpu": str(cpu), "memory": str(memory), "pods": "110", **(extended or {})}
    cpu_left, memory_left = allocatable or (cpu, memory)
    left = {**capacity, "cpu": str(cpu_left), "memory": str(memory_left)}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (annotations or {}).items()
    }
    status = msgspec.convert({"capacity": capacity, "allocatable": left}, wire.NodeStatus)
    return reading.node_facts("n", labels or {}, texts, status)


def pod(
    name: str,
    cpu: Any = None,
    memory: Any = None,
    *,
    qos: str = "",
    priority: str = "",
    phase: str = "Running",
    numa: tuple[int, ...] = (),
) -> PodFacts:
    """``priority``: prod, mid, batch or free. CPU and memory are its request."""
    given = {"cpu": cpu, "memory": memory}
    requests = {key: str(value) for key, value in given.items() if value is not None}
    spec = {
        "nodeName": "n",
        "priority": PRIORITY.get(priority),
        "containers": [{"name": "c", "resources": {"requests": requests}}],
    }
    status = {"numaNodeResources": [{"node": each} for each in numa]}
    return reading.pod_facts(
        "default",
        name,
        {"koordinator.sh/qosClass": qos} if qos else {},
        {"scheduling.koordinator.sh/resource-status": json.dumps(status)} if numa else {},
        msgspec.convert(spec, wire.PodSpec),
        msgspec.convert({"phase": phase}, wire.PodStatus),
    )


def usage(cpu: Any, memory: Any) -> dict[str, Any]:
    return {"resources": {"cpu": str(cpu), "memory": str(memory)}}


def metric(
    used: dict[str, tuple[Any, Any, str]] | None = None,
    *,
    system: tuple[Any, Any] | None = None,
    node_usage: tuple[Any, Any] | None = (0, 0),
    reclaimable: tuple[Any, Any] | None = None,
    applications: dict[str, tuple[Any, Any, str]] | None = None,
    updated: str | None = NOW,
) -> MetricFacts:
    """``used``: by pod CPU, memory, and prod, mid, batch or free."""
    status: dict[str, Any] = {
        "updateTime": updated,
        "nodeMetric": {
            **({"nodeUsage": usage(*node_usage)} if node_usage else {}),
            **({"systemUsage": usage(*system)} if system else {}),
        },
        "podsMetric": [
            {
                "namespace": "default",
                "name": name,
                "podUsage": usage(cpu, memory),
                "priority": CLASS_OF_NAME[cls],
            }
            for name, (cpu, memory, cls) in (used or {}).items()
        ],
        "hostApplicationMetric": [
            {"name": name, "usage": usage(cpu, memory), "priority": CLASS_OF_NAME.get(cls, "")}
            for name, (cpu, memory, cls) in (applications or {}).items()
        ],
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": usage(*reclaimable)}
    return reading.metric_facts(msgspec.convert(status, wire.NodeMetricStatus))


def topology(
    *zones: tuple[Any, Any], cpu_info: dict[str, Any] | None = None, batch: Any = None
) -> TopologyFacts:
    """``batch``: CPU and memory of the batch resources that stand with each zone."""
    annotations = {reading.CPU_BASIC_INFO: json.dumps(cpu_info)} if cpu_info else {}
    return reading.topology_facts(
        annotations, msgspec.convert(zone_trees(*zones, batch=batch), tuple[wire.Zone, ...])
    )


def zone_trees(*zones: tuple[Any, Any], batch: Any = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, (cpu, memory) in enumerate(zones):
        amounts = {"cpu": cpu, "memory": memory}
        if batch is not None:
            amounts["kubernetes.io/batch-cpu"], amounts["kubernetes.io/batch-memory"] = batch
        found.append(
            {
                "name": f"node-{number}",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}],
                "resources": [
                    {
                        "name": name,
                        **dict.fromkeys(("capacity", "allocatable", "available"), str(v)),
                    }
                    for name, v in sorted(amounts.items())
                ],
            }
        )
    return found


def colocation(**fields: Any) -> dict[str, str]:
    """Data of the ConfigMap, switched on."""
    return {"colocation-config": json.dumps({"enable": True, **fields})}


def planned(
    data: dict[str, str],
    of: NodeFacts,
    report: MetricFacts | None = None,
    *pods: PodFacts,
    now_s: float = NOW_S,
    **others: Any,
) -> Plan:
    found = plan(Inputs(of, report, pods, **others), loaded(data), now_s)
    assert found is not None
    return found


def loaded(data: dict[str, str]) -> Configuration:
    configuration = load(data, None)
    refused = [each for each in configuration.outcomes if each.refused]
    assert not refused, refused
    return configuration
