"""NodeMetric from a store, field by field (docs/reference/metrics.md 5)."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.cluster.reporting.node_metric import Policy, Who, policy_of, status_of
from koordlet.decision import metrics as k
from koordlet.decision.memory_figures import (
    NODE_MEMORY_WITH_HOT_PAGE_USAGE,
    POD_MEMORY_WITH_HOT_PAGE_USAGE,
)
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Application, Cpu, Node, Pod, Topology
from koordlet.prediction.reclaimable import Amounts, Predicted, Reclaimable
from koordlet.protocol.colocation import MetricAggregatePolicy
from koordlet.protocol.objects.node_metric import (
    MetricCollectPolicy,
    NodeMetricSpec,
    NodeMetricStatus,
)
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from koordlet.state.snapshot import TsdbView
from koordlet.tsdb import Store

GIB = 1 << 30
START_MS = 1_800_000_000_000
NODE = Node(
    "n1",
    Topology(tuple(Cpu(number, number, 0, number // 2, 0) for number in range(4))),
    capacity_milli=4000,
    memory_bytes=16 * GIB,
)
DEFAULT = Policy(300.0, 60.0, (300.0, 600.0, 1800.0), "usageWithoutPageCache")
POLICY = DEFAULT._replace(durations_s=(300.0, 600.0))


class Filled:
    """A store with a round a second."""

    def __init__(self) -> None:
        self.store = Store(None)
        self.time_ms = START_MS
        self.values: dict[tuple[Metric, tuple[str, ...]], float] = {}

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self.values[metric, labels] = value

    def run(self, seconds: int) -> None:
        ids = [
            self.store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True)))
            for metric, labels in self.values
        ]
        for _ in range(seconds):
            self.time_ms += 1000
            self.store.append(self.time_ms, ids, list(self.values.values()))

    def status(self, policy: Policy = POLICY, **who: object) -> NodeMetricStatus:
        view = TsdbView(self.store, self.time_ms)
        whom = Who(NODE, **who)  # type: ignore[arg-type]
        return status_of(view, policy, whom, None, self.time_ms / 1000)


def _pod(uid: str, name: str, **fields: object) -> Pod:
    values: dict[str, object] = {"kube_qos": KubeQoS.BURSTABLE, "namespace": "default"}
    return Pod(uid, f"kubepods/{uid}", name=name, **(values | fields))  # type: ignore[arg-type]


@pytest.fixture
def filled() -> Filled:
    made = Filled()
    made.set(k.NODE_CPU_USAGE, 2.5)
    made.set(k.NODE_MEMORY_USAGE, 4 * GIB)
    made.set(k.NODE_MEMORY_USAGE_WITH_PAGE_CACHE, 6 * GIB)
    made.set(k.SYS_CPU_USAGE, 0.5)
    made.set(k.SYS_MEMORY_USAGE, GIB)
    return made


def test_means_of_the_window(filled: Filled) -> None:
    filled.set(k.NODE_CPU_USAGE, 1.0)
    filled.run(150)
    filled.set(k.NODE_CPU_USAGE, 2.0)
    filled.run(150)
    found = filled.status()
    assert found.update_time == "2027-01-15T08:05:00Z"
    assert found.node_metric is not None
    assert found.node_metric.node_usage.resources == {"cpu": "1500m", "memory": "4Gi"}
    assert found.node_metric.system_usage.resources == {"cpu": "500m", "memory": "1Gi"}
    assert found.prod_peak_metric is None
    assert msgspec.to_builtins(found.prod_reclaimable_metric) == {"resource": {}}


def test_percentiles_only_of_windows_that_samples_span(filled: Filled) -> None:
    filled.run(200)
    usages = filled.status().node_metric.aggregated_node_usages  # type: ignore[union-attr]
    assert [each.duration for each in usages] == ["5m", "10m"]
    assert set(usages[0].usage) == {"avg", "p50", "p90", "p95", "p99"}
    assert usages[0].usage["p99"].resources == {"cpu": "2500m", "memory": "4Gi"}
    assert usages[1].usage == {}
    filled.run(101)
    usages = filled.status().node_metric.aggregated_system_usages  # type: ignore[union-attr]
    assert usages[1].usage["avg"].resources == {"cpu": "500m", "memory": "1Gi"}


def test_nothing_measured_is_still_a_report() -> None:
    found = Filled().status(DEFAULT)
    tree = msgspec.to_builtins(found)
    assert "podsMetric" not in tree
    usages = tree["nodeMetric"]["aggregatedNodeUsages"]
    assert list(usages) == [{"usage": {}, "duration": text} for text in ("5m", "10m", "30m")]


def test_pods_by_namespace_and_name_with_their_classes(filled: Filled) -> None:
    pods = (
        _pod("u1", "web", raw_qos=QoSClass.LS),
        _pod("u2", "batch", raw_qos=QoSClass.BE, namespace="a"),
        _pod("u3", "mid", priority_class=PriorityClass.MID, raw_qos=QoSClass.LS),
        _pod("u4", "unmeasured"),
        _pod("u5", ""),
    )
    for uid in ("u1", "u2", "u3", "u5"):
        filled.set(k.POD_CPU_USAGE, 1.25, uid)
        filled.set(k.POD_MEMORY_USAGE, GIB, uid)
    filled.run(300)
    found = filled.status(pods=pods).pods_metric
    assert [(p.namespace, p.name, p.priority, p.qos) for p in found] == [
        ("a", "batch", "koord-batch", "BE"),
        ("default", "mid", "koord-mid", "LS"),
        ("default", "web", "koord-prod", "LS"),
    ]
    assert found[0].pod_usage.resources == {"cpu": "1250m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("policy", "node", "pod"),
    [
        ("usageWithoutPageCache", "4Gi", "1Gi"),
        ("usageWithPageCache", "6Gi", "2Gi"),
        ("usageWithHotPageCache", "5Gi", "1536Mi"),
        ("unheard", "4Gi", "1Gi"),
    ],
)
def test_which_memory_counts(filled: Filled, policy: str, node: str, pod: str) -> None:
    filled.set(NODE_MEMORY_WITH_HOT_PAGE_USAGE, 5 * GIB)
    filled.set(k.POD_MEMORY_USAGE, GIB, "u1")
    filled.set(k.POD_MEMORY_USAGE_WITH_PAGE_CACHE, 2 * GIB, "u1")
    filled.set(POD_MEMORY_WITH_HOT_PAGE_USAGE, 1.5 * GIB, "u1")
    filled.run(300)
    found = filled.status(POLICY._replace(memory=policy), pods=(_pod("u1", "p"),))
    assert found.node_metric is not None
    assert found.node_metric.node_usage.resources["memory"] == node
    assert found.node_metric.system_usage.resources["memory"] == "1Gi"
    assert found.pods_metric[0].pod_usage.resources["memory"] == pod


def test_numa_nodes_that_were_measured(filled: Filled) -> None:
    for numa in "01":
        filled.set(k.NODE_NUMA_CPU_USAGE, 1.0, numa)
    filled.set(k.NODE_NUMA_MEMORY_USAGE, GIB, "1")
    filled.run(300)
    found = filled.status().node_metric.numa_usages  # type: ignore[union-attr]
    assert [(each.numa_node_id, dict(each.system_usage.resources)) for each in found] == [(1, {})]


def test_applications(filled: Filled) -> None:
    filled.set(k.HOST_APPLICATION_CPU_USAGE, 0.5, "nginx")
    filled.set(k.HOST_APPLICATION_MEMORY_USAGE, GIB, "nginx")
    filled.run(300)
    applications = (Application("zz", "zz", QoSClass.LS), Application("nginx", "n", QoSClass.LS))
    (found,) = filled.status(applications=applications).host_application_metric
    assert (found.name, found.priority, found.qos) == ("nginx", "koord-prod", "LS")
    assert found.usage.resources == {"cpu": "500m", "memory": "1Gi"}


def test_gpus_of_node_and_pods(filled: Filled) -> None:
    gpu = ("0", "GPU-1")
    filled.set(k.NODE_GPU_CORE_USAGE, 55.9, *gpu)
    filled.set(k.NODE_GPU_MEMORY_USAGE, 10 * GIB, *gpu)
    filled.set(k.NODE_GPU_MEMORY_TOTAL, 80 * GIB, *gpu)
    filled.set(k.POD_GPU_CORE_USAGE, 20.0, "u1", *gpu)
    filled.set(k.POD_GPU_MEMORY_USAGE, 4 * GIB, "u1", *gpu)
    filled.set(k.POD_CPU_USAGE, 1.0, "u1")
    filled.run(300)
    found = filled.status(pods=(_pod("u1", "p"),))
    assert found.node_metric is not None
    (device,) = found.node_metric.node_usage.devices
    assert (device.type, device.id, device.minor) == ("gpu", "GPU-1", 0)
    assert device.resources == {
        "koordinator.sh/gpu-core": "55",
        "koordinator.sh/gpu-memory": "10Gi",
        "koordinator.sh/gpu-memory-ratio": "12",
    }
    (of_pod,) = found.pods_metric[0].pod_usage.devices
    assert of_pod.resources["koordinator.sh/gpu-core"] == "20"


def test_what_is_predicted(filled: Filled) -> None:
    both = Predicted(Amounts(1001, GIB), Amounts(2500, 2 * GIB))
    view = TsdbView(filled.store, filled.time_ms)
    found = status_of(view, POLICY, Who(NODE), Reclaimable(both, both), 0.0)
    tree = msgspec.to_builtins(found)
    assert tree["prodReclaimableMetric"]["resource"]["resources"] == {
        "cpu": "1001m",
        "memory": "1Gi",
    }
    assert tree["prodPeakMetric"]["resource"]["resources"] == {"cpu": "2500m", "memory": "2Gi"}


def test_the_policy_has_defaults_and_floors() -> None:
    assert policy_of(NodeMetricSpec()) == DEFAULT
    asked = MetricCollectPolicy(
        aggregate_duration_seconds=10,
        report_interval_seconds=10,
        node_aggregate_policy=MetricAggregatePolicy((60.0,)),
        node_memory_collect_policy="usageWithPageCache",
    )
    assert policy_of(NodeMetricSpec(asked)) == Policy(60.0, 30.0, (60.0,), "usageWithPageCache")
    empty = MetricCollectPolicy(node_aggregate_policy=MetricAggregatePolicy(()))
    assert policy_of(NodeMetricSpec(empty)) == DEFAULT
