"""What a NodeMetric says (docs/reference/metrics.md 5), from the local store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, TypeVar

from koordlet.cluster.reporting.trigger import Level
from koordlet.decision import metrics as k
from koordlet.decision.memory_figures import Subject, memory_figure
from koordlet.decision.metrics import Aggregate, Metric, MetricView
from koordlet.decision.snapshot import Application, Node, Pod
from koordlet.prediction.reclaimable import (
    Reclaimable,
    prod_peak_metric,
    prod_reclaimable_metric,
)
from koordlet.protocol.colocation import COLOCATION_DEFAULTS
from koordlet.protocol.duration import format_duration
from koordlet.protocol.objects.device import GPU, DeviceInfo
from koordlet.protocol.objects.node_metric import (
    AggregatedUsage,
    ApplicationUsage,
    MetricCollectPolicy,
    NodeMetricSpec,
    NodeMetricStatus,
    NodeUsage,
    NumaUsage,
    PodUsage,
    ResourceMap,
)
from koordlet.protocol.objects.times import instant
from koordlet.protocol.qos import PriorityClass, QoSClass, priority_class_with_default
from koordlet.protocol.quantity import bytes_text, cpu_text
from koordlet.protocol.resources import CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY

AGGREGATES = (Aggregate.AVG, Aggregate.P50, Aggregate.P90, Aggregate.P95, Aggregate.P99)
MIN_SPAN = 0.5
"""Of a window, that samples must span for its percentiles to mean anything."""
PODS_AT_ONCE = 10
"""Between two rests."""


class Policy(NamedTuple):
    """How to measure. ``memory``: which counts as used."""

    window_s: float
    interval_s: float
    durations_s: tuple[float, ...]
    memory: str


LEAST_WINDOW_S, LEAST_INTERVAL_S = 60.0, 30.0


def policy_of(spec: NodeMetricSpec) -> Policy:
    """With defaults, which are the manager's, and floors (5.1)."""
    asked, default = spec.metric_collect_policy or MetricCollectPolicy(), COLOCATION_DEFAULTS
    window_s = asked.aggregate_duration_seconds or default.metric_aggregate_duration_seconds
    interval_s = asked.report_interval_seconds or default.metric_report_interval_seconds
    policies = asked.node_aggregate_policy, default.metric_aggregate_policy
    memory = asked.node_memory_collect_policy or default.metric_memory_collect_policy
    return Policy(
        max(LEAST_WINDOW_S, window_s or 0),
        max(LEAST_INTERVAL_S, interval_s or 0),
        next((each.durations for each in policies if each and each.durations), ()),
        memory or "",
    )


class Who(NamedTuple):
    """Whose usage is reported."""

    node: Node
    pods: tuple[Pod, ...] = ()
    applications: tuple[Application, ...] = ()


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that rests at each ``yield`` and returns a T."""


def status_of(
    view: MetricView, policy: Policy, who: Who, predicted: Reclaimable | None, now_s: float
) -> NodeMetricStatus:
    """``now_s``: unix seconds."""
    steps = status_steps(view, policy, who, predicted, now_s)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def status_steps(
    view: MetricView, policy: Policy, who: Who, predicted: Reclaimable | None, now_s: float
) -> Steps[NodeMetricStatus]:
    """As ``status_of``, in steps, because 300 pods take some tens of milliseconds."""
    node = yield from _node(view, policy, who.node)
    pods = yield from _pods(view, policy, who.pods)
    return NodeMetricStatus(
        update_time=instant(now_s),
        node_metric=node,
        pods_metric=pods,
        host_application_metric=tuple(_applications(view, policy, who.applications)),
        prod_reclaimable_metric=prod_reclaimable_metric(predicted),
        prod_peak_metric=prod_peak_metric(predicted),
    )


def _node(view: MetricView, policy: Policy, node: Node) -> Steps[NodeUsage]:
    window_s = policy.window_s
    nodes = list[AggregatedUsage]()
    systems = list[AggregatedUsage]()
    for duration_s in policy.durations_s:
        text = format_duration(duration_s)
        cpu, system = k.NODE_CPU_USAGE, k.SYS_CPU_USAGE
        enough = _spans(view, cpu, duration_s)
        usage = _by_aggregate(_node_map, view, policy, duration_s) if enough else {}
        nodes.append(AggregatedUsage(usage, text))
        enough = _spans(view, system, duration_s)
        usage = _by_aggregate(_system_map, view, policy, duration_s) if enough else {}
        systems.append(AggregatedUsage(usage, text))
        yield
    usage_now = _node_map(view, policy, window_s, Aggregate.AVG)
    gpus = tuple(_gpus(view, window_s))
    return NodeUsage(
        ResourceMap(usage_now.resources, gpus),
        tuple(nodes),
        _system_map(view, policy, window_s, Aggregate.AVG),
        tuple(systems),
        tuple(_numa(view, window_s, node)),
    )


def level_of(view: MetricView, policy: Policy) -> Level:
    """The node's usage as it is reported."""
    how, window_s = Aggregate.AVG, policy.window_s
    memory = memory_figure(view, policy.memory, Subject.NODE, window_s=window_s, aggregate=how)
    cores = _value(view, k.NODE_CPU_USAGE, (), window_s)
    milli = None if cores is None else 1000 * cores
    return Level(milli, memory.reading.value if memory is not None else None)


def _spans(view: MetricView, metric: Metric, duration_s: float) -> bool:
    found = view.read(metric, window_s=duration_s, aggregate=Aggregate.AVG)
    return found is not None and found.span_s >= MIN_SPAN * duration_s


_Usage = Callable[[MetricView, Policy, float, Aggregate], ResourceMap]


def _by_aggregate(
    usage: _Usage, view: MetricView, policy: Policy, duration_s: float
) -> dict[str, ResourceMap]:
    return {str(how): usage(view, policy, duration_s, how) for how in AGGREGATES}


def _node_map(view: MetricView, policy: Policy, window_s: float, how: Aggregate) -> ResourceMap:
    memory = memory_figure(view, policy.memory, Subject.NODE, window_s=window_s, aggregate=how)
    cpu = _value(view, k.NODE_CPU_USAGE, (), window_s, how)
    return _map(cpu, memory and memory.reading.value)


def _system_map(view: MetricView, policy: Policy, window_s: float, how: Aggregate) -> ResourceMap:
    """Always without page cache, whatever the policy."""
    return _map(
        _value(view, k.SYS_CPU_USAGE, (), window_s, how),
        _value(view, k.SYS_MEMORY_USAGE, (), window_s, how),
    )


def _numa(view: MetricView, window_s: float, node: Node) -> Iterator[NumaUsage]:
    """A NUMA node is left out where its CPU or memory was not measured."""
    for numa in sorted({cpu.numa for cpu in node.topology.cpus}):
        labels = (str(numa),)
        used = [
            _value(view, metric, labels, window_s)
            for metric in (k.NODE_NUMA_CPU_USAGE, k.NODE_NUMA_MEMORY_USAGE)
        ]
        if None in used:
            continue
        system = [
            _value(view, metric, labels, window_s)
            for metric in (k.SYS_NUMA_CPU_USAGE, k.SYS_NUMA_MEMORY_USAGE)
        ]
        of_system = ResourceMap() if None in system else _map(*system)
        yield NumaUsage(numa_node_id=numa, node_usage=_map(*used), system_usage=of_system)


def _pods(view: MetricView, policy: Policy, pods: Iterable[Pod]) -> Steps[tuple[PodUsage, ...]]:
    """Those whose CPU or memory was measured and whose name is known, by namespace and name."""
    window_s = policy.window_s
    gpus, found = _pod_gpus(view, window_s), list[PodUsage]()
    named = sorted((pod for pod in pods if pod.name), key=lambda each: (each.namespace, each.name))
    for number, pod in enumerate(named):
        if number % PODS_AT_ONCE == 0:
            yield
        labels = (pod.uid,)
        cpu = _value(view, k.POD_CPU_USAGE, labels, window_s)
        memory = memory_figure(view, policy.memory, Subject.POD, labels, window_s=window_s)
        if cpu is None and memory is None:
            continue
        usage = _map(cpu, memory and memory.reading.value)
        found.append(
            PodUsage(
                pod.namespace,
                pod.name,
                *_classes(pod.priority_class, pod.qos),
                ResourceMap(usage.resources, gpus.get(pod.uid, ())),
            )
        )
    return tuple(found)


def _applications(
    view: MetricView, policy: Policy, applications: Iterable[Application]
) -> Iterator[ApplicationUsage]:
    window_s = policy.window_s
    for each in sorted(applications, key=lambda each: each.name):
        labels, subject = (each.name,), Subject.HOST_APPLICATION
        cpu = _value(view, k.HOST_APPLICATION_CPU_USAGE, labels, window_s)
        memory = memory_figure(view, policy.memory, subject, labels, window_s=window_s)
        if cpu is not None or memory is not None:
            usage = _map(cpu, memory and memory.reading.value)
            priority, qos = _classes(each.priority_class, each.qos)
            yield ApplicationUsage(each.name, usage, priority, qos)


def _classes(priority: PriorityClass | None, qos: QoSClass | None) -> tuple[str, str]:
    """Priority class and QoS class as words (5.4)."""
    return str(priority_class_with_default(priority, qos) or ""), str(qos or "")


def _gpus(view: MetricView, window_s: float) -> Iterator[DeviceInfo]:
    for minor, uuid in sorted(view.newest(k.NODE_GPU_CORE_USAGE, window_s=window_s)):
        labels = (minor, uuid)
        core = _value(view, k.NODE_GPU_CORE_USAGE, labels, window_s)
        memory = _value(view, k.NODE_GPU_MEMORY_USAGE, labels, window_s)
        yield _gpu(view, minor, uuid, core, memory, window_s)


def _pod_gpus(view: MetricView, window_s: float) -> dict[str, tuple[DeviceInfo, ...]]:
    found = sorted(view.newest(k.POD_GPU_CORE_USAGE, window_s=window_s))
    by_pod = {}
    for uid, group in groupby(found, key=lambda labels: labels[0]):
        devices = []
        for _, minor, uuid in group:
            labels = (uid, minor, uuid)
            core = _value(view, k.POD_GPU_CORE_USAGE, labels, window_s)
            memory = _value(view, k.POD_GPU_MEMORY_USAGE, labels, window_s)
            devices.append(_gpu(view, minor, uuid, core, memory, window_s))
        by_pod[uid] = tuple(devices)
    return by_pod


def _gpu(
    view: MetricView,
    minor: str,
    uuid: str,
    core: float | None,
    memory: float | None,
    window_s: float,
) -> DeviceInfo:
    """``resources`` is what of the device is used."""
    total = _value(view, k.NODE_GPU_MEMORY_TOTAL, (minor, uuid), window_s)
    resources = {}
    if core is not None:
        resources[GPU_CORE] = str(int(core))
    if memory is not None:
        resources[GPU_MEMORY] = bytes_text(int(memory))
        if total:
            resources[GPU_MEMORY_RATIO] = str(int(100 * memory / total))
    return DeviceInfo(type=GPU, health=True, id=uuid, minor=int(minor), resources=resources)


def _value(
    view: MetricView,
    metric: Metric,
    labels: tuple[str, ...],
    window_s: float,
    how: Aggregate = Aggregate.AVG,
) -> float | None:
    found = view.read(metric, labels, window_s=window_s, aggregate=how)
    return found.value if found is not None else None


def _map(cores: float | None, size_bytes: float | None) -> ResourceMap:
    resources = {}
    if cores is not None:
        resources[CPU] = cpu_text(int(cores * 1000))
    if size_bytes is not None:
        resources[MEMORY] = bytes_text(int(size_bytes))
    return ResourceMap(resources)
