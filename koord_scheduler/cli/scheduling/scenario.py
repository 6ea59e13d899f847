"""``koord-scheduler bench --scenario FILE``: the reference's test/perf scenarios on the arrays.

No API server takes part: what is measured is how fast decisions are made. Pods come
``concurrency`` at a time, as requests would be on their way, and the latency of a pod is the time
from its arrival to its decision.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.output import columns, emit
from koord_scheduler.cli.scheduling.source import profiles_of
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.model.amounts import amount_of
from koord_scheduler.plan.course import Decision, fingerprint
from koord_scheduler.plan.run import Run
from koordlet.kube.errors import UnusableError
from koordlet.protocol.document import UNREADABLE

_NODE = {"cpu": "32", "memory": "256Gi", "pods": "110"}
_Count = Annotated[int, msgspec.Meta(gt=0, le=200_000)]
_Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Thresholds(msgspec.Struct, frozen=True, rename="camel"):
    throughput_drop_pct: _Percent = 0.0
    p99_increase_pct: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Scenario(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """As in the reference's file. What concerns its client and its simulated kubelets is read and
    has no effect."""

    name: str
    description: str = ""
    scheduler_name: str = "koord-scheduler"
    namespace: str = "benchmark"
    node_count: _Count
    pod_count: _Count
    concurrency: Annotated[int, msgspec.Meta(gt=0, le=100_000)] = 50
    qos_class: str = ""
    gang_size: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    min_member: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    resource_requests: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_template_file: str = ""
    thresholds: Thresholds = Thresholds()
    high_util_node_count: Annotated[int, msgspec.Meta(ge=0)] = 0
    high_util_cpu_pct: _Percent = msgspec.field(default=0.0, name="highUtilCPUPct")
    quota_cpu: str = msgspec.field(default="", name="quotaCPU")
    quota_memory: str = ""


class Result(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Keys as in the reference's results; those that it lacks come last."""

    name: str
    node_count: int
    pod_count: int
    throughput_pods_per_sec: float
    total_duration_sec: float
    latency_p50_sec: float
    latency_p90_sec: float
    latency_p99_sec: float
    gang_completion_p50_sec: float | None
    gang_completion_p99_sec: float | None
    threshold_breached: bool
    placed: int
    decision_p50_sec: float
    decision_p99_sec: float
    hash: str


class _Baseline(msgspec.Struct, frozen=True, rename="camel"):
    throughput_pods_per_sec: float = 0.0
    latency_p99_sec: float = 0.0


def main(args: argparse.Namespace) -> int:
    """1 where the baseline is missed by more than the thresholds."""
    scenario = read(args.scenario)
    world = World(profiles_of(args))
    try:
        world.take_all(_objects(scenario, args.scenario), args.scenario)
        pods = list(_pods(scenario))
        result = run(world, scenario, pods, _baseline(args.baseline))
    except UnusableError as error:
        raise BadInputError(str(error)) from None
    emit(result, args.output, lambda: _lines(result))
    return 1 if result.threshold_breached else 0


def read(path: str) -> Scenario:
    """Raises BadInputError."""
    documents = [each for each in read_documents(path) if isinstance(each, dict)]
    if len(documents) != 1:
        raise BadInputError(f"{path}: a scenario is one document")
    try:
        return msgspec.convert(documents[0], Scenario, strict=False)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {error}") from None


def run(
    world: World, scenario: Scenario, pods: list[dict[str, Any]], baseline: _Baseline | None
) -> Result:
    """Takes as long as it takes: nothing is waited for."""
    made: dict[str, Decision] = {}
    came_s: dict[str, float] = {}
    done_s: dict[str, float] = {}
    single: list[float] = []

    def heard(decision: Decision) -> None:
        made[decision.pod] = decision
        if decision.node:
            done_s[decision.pod] = time.perf_counter()

    loop = Run(world, heard)
    begun_s = time.perf_counter()
    batch = max(scenario.concurrency, scenario.gang_size, 1)
    for first in range(0, len(pods), batch):
        some = pods[first : first + batch]
        arrived_s = time.perf_counter()
        world.take_all(some, "")
        for each in some:
            key = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            came_s[key] = arrived_s
            loop.changed(world.waiting[key], world.newest_s)
        while True:
            before_s = time.perf_counter()
            if not loop.step(world.newest_s, most=1):
                break
            single.append(time.perf_counter() - before_s)
    total_s = max(time.perf_counter() - begun_s, 1e-9)
    waits = [done_s[key] - came_s[key] for key in done_s] or [0.0]
    p50, p90, p99 = np.percentile(waits, (50, 90, 99)).tolist()
    one50, one99 = np.percentile(single or [0.0], (50, 99)).tolist()
    gang = [None, None] if not scenario.gang_size else np.percentile(waits, (50, 99)).tolist()
    throughput = len(done_s) / total_s
    worse = baseline is not None and _worse(scenario.thresholds, baseline, throughput, p99)
    return Result(
        name=scenario.name,
        node_count=scenario.node_count,
        pod_count=scenario.pod_count,
        throughput_pods_per_sec=round(throughput, 1),
        total_duration_sec=round(total_s, 4),
        latency_p50_sec=round(p50, 6),
        latency_p90_sec=round(p90, 6),
        latency_p99_sec=round(p99, 6),
        gang_completion_p50_sec=gang[0],
        gang_completion_p99_sec=gang[1],
        threshold_breached=worse,
        placed=len(done_s),
        decision_p50_sec=round(one50, 6),
        decision_p99_sec=round(one99, 6),
        hash=fingerprint(made.values()),
    )


def _worse(allowed: Thresholds, baseline: _Baseline, throughput: float, p99_s: float) -> bool:
    floor = baseline.throughput_pods_per_sec * (1 - allowed.throughput_drop_pct / 100)
    ceiling = baseline.latency_p99_sec * (1 + allowed.p99_increase_pct / 100)
    return throughput < floor or (baseline.latency_p99_sec > 0 and p99_s > ceiling)


def _baseline(path: str) -> _Baseline | None:
    if not path:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Baseline)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise BadInputError(f"{path}: {error}") from None


def _objects(scenario: Scenario, path: str) -> Iterator[dict[str, Any]]:
    template: dict[str, Any] = {}
    if scenario.node_template_file:
        where = Path(path).parent / scenario.node_template_file
        found = read_documents(str(where))
        template = found[0] if found and isinstance(found[0], dict) else {}
    meta, status = template.get("metadata") or {}, template.get("status") or {}
    amounts = status.get("allocatable") or status.get("capacity") or _NODE
    for number in range(scenario.node_count):
        name = f"bench-node-{number:05d}"
        labels = {**(meta.get("labels") or {}), "kubernetes.io/hostname": name}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": template.get("spec") or {},
            "status": {"allocatable": amounts},
        }
        if number < scenario.high_util_node_count:
            yield _report(name, scenario.high_util_cpu_pct, amounts)
    if scenario.quota_cpu or scenario.quota_memory:
        most = {
            name: text
            for name, text in (("cpu", scenario.quota_cpu), ("memory", scenario.quota_memory))
            if text
        }
        yield {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": scenario.namespace, "namespace": scenario.namespace},
            "spec": {"min": most, "max": most},
        }


def _report(name: str, percent: float, amounts: dict[str, str]) -> dict[str, Any]:
    milli = int((amount_of(amounts.get("cpu"), "cpu") or 0) * percent / 100)
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "status": {
            "updateTime": "2026-01-31T12:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": f"{milli}m", "memory": "1Gi"}}},
        },
    }


def _pods(scenario: Scenario) -> Iterator[dict[str, Any]]:
    labels = dict(scenario.labels)
    if scenario.qos_class:
        labels["koordinator.sh/qosClass"] = scenario.qos_class
    if scenario.quota_cpu or scenario.quota_memory:
        labels["quota.scheduling.koordinator.sh/name"] = scenario.namespace
    amounts = dict(scenario.resource_requests)
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    for number in itertools.islice(itertools.count(), scenario.pod_count):
        own = dict(labels)
        if scenario.gang_size:
            gang = number // scenario.gang_size
            own["pod-group.scheduling.sigs.k8s.io/name"] = f"gang-{gang}"
            own["pod-group.scheduling.sigs.k8s.io/min-available"] = str(
                scenario.min_member or scenario.gang_size
            )
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"bench-{number:06d}",
                "namespace": scenario.namespace,
                "uid": f"bench-{number}",
                "labels": own,
                "annotations": scenario.annotations,
                "creationTimestamp": "2026-01-31T12:00:00Z",
            },
            "spec": {"schedulerName": scenario.scheduler_name, "containers": [container]},
        }


def _lines(result: Result) -> Iterator[str]:
    rows = [
        ("nodes", str(result.node_count)),
        ("pods", f"{result.placed} of {result.pod_count} placed"),
        ("throughput", f"{result.throughput_pods_per_sec:.0f} pods/s"),
        ("decision", f"p50 {_ms(result.decision_p50_sec)}, p99 {_ms(result.decision_p99_sec)}"),
        ("latency", f"p50 {_ms(result.latency_p50_sec)}, p99 {_ms(result.latency_p99_sec)}"),
        ("placements", result.hash[:16]),
    ]
    yield from columns((result.name.upper(), ""), rows)
    if result.threshold_breached:
        yield "worse than the baseline by more than the thresholds"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
