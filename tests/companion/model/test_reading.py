"""API objects to facts (docs/reference/central.md 0.3, docs/reference/protocol.md 1)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.model import reading, wire
from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import CPUModel, PodFacts
from koordlet.protocol.qos import PriorityClass, QoSClass

QOS = "koordinator.sh/qosClass"
PRIORITY = "koordinator.sh/priority-class"
REQUEST = {"cpu": "1", "memory": "1Gi"}


def container(
    cpu: Any = None, memory: Any = None, limits: dict[str, str] | None = None
) -> dict[str, Any]:
    given_ = {"cpu": cpu, "memory": memory}
    requests = {key: value for key, value in given_.items() if value is not None}
    return {"resources": {"requests": requests, "limits": limits or {}}}


def spec(*containers: dict[str, Any], **others: Any) -> wire.PodSpec:
    return msgspec.convert({"containers": list(containers), **others}, wire.PodSpec)


def facts(
    labels: dict[str, str] | None = None,
    *containers: dict[str, Any],
    annotations: dict[str, str] | None = None,
    status: dict[str, str] | None = None,
    **others: Any,
) -> PodFacts:
    return reading.pod_facts(
        "ns",
        "p",
        labels or {},
        annotations or {},
        spec(*containers, **others),
        msgspec.convert(status or {"phase": "Running"}, wire.PodStatus),
    )


@pytest.mark.parametrize(
    ("labels", "priority", "containers", "qos", "cls"),
    [
        ({}, None, (container(),), QoSClass.BE, PriorityClass.BATCH),
        ({}, None, (container("1", None),), QoSClass.LS, PriorityClass.PROD),
        ({}, None, (container("1", "1Gi", REQUEST),), QoSClass.LSR, PriorityClass.PROD),
        ({}, None, (container(limits=REQUEST),), QoSClass.LSR, PriorityClass.PROD),
        ({}, 9500, (container(),), QoSClass.BE, PriorityClass.PROD),
        ({}, 7000, (container(),), QoSClass.BE, PriorityClass.MID),
        ({}, 5999, (container("1"),), QoSClass.LS, PriorityClass.BATCH),
        ({}, 6000, (container("1"),), QoSClass.LS, PriorityClass.PROD),
        ({PRIORITY: "koord-free"}, 9500, (container("1"),), QoSClass.LS, PriorityClass.FREE),
        ({PRIORITY: "what"}, 5500, (container("1"),), QoSClass.LS, PriorityClass.PROD),
        ({QOS: "BE"}, None, (container("1"),), QoSClass.BE, PriorityClass.BATCH),
        ({QOS: "be"}, None, (container("1"),), QoSClass.LS, PriorityClass.PROD),
        ({QOS: "SYSTEM"}, None, (container(),), QoSClass.SYSTEM, PriorityClass.PROD),
        ({QOS: "LSE"}, None, (container("1"),), QoSClass.LSE, PriorityClass.PROD),
    ],
)
def test_classes_with_default(
    labels: dict[str, str],
    priority: int | None,
    containers: tuple[dict[str, Any], ...],
    qos: QoSClass,
    cls: PriorityClass,
) -> None:
    found = facts(labels, *containers, priority=priority)
    assert (found.qos, found.priority_class) == (qos, cls)


def test_the_class_of_kubernetes_is_taken_from_the_status() -> None:
    status = {"phase": "Running", "qosClass": "Guaranteed"}
    assert facts({}, container(), status=status).qos is QoSClass.LSR


@pytest.mark.parametrize(
    ("phase", "counts"),
    [("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False), ("", False)],
)
def test_which_pods_count(phase: str, counts: bool) -> None:
    assert facts({}, container(), status={"phase": phase}).counts is counts


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("of", "cpu_milli", "memory_bytes"),
    [
        (spec(container("500m", "1Ki"), container("0.0001", "0.5")), 501, 1025),
        (spec(container(limits={"cpu": "2"})), 2000, 0),
        (spec(container("1"), initContainers=[container("3"), container("2")]), 3000, 0),
        (spec(container("1"), initContainers=[{**container("2"), **SIDECAR}]), 3000, 0),
        (
            spec(container("1"), initContainers=[{**container("2"), **SIDECAR}, container("4")]),
            *(6000, 0),
        ),
        (
            spec(container("1"), initContainers=[container("4"), {**container("2"), **SIDECAR}]),
            *(4000, 0),
        ),
        (spec(container("1"), overhead={"cpu": "100m", "memory": "1Mi"}), 1100, 1 << 20),
        (
            spec(container("1", "5"), resources={"requests": {"cpu": "8"}}, overhead={"cpu": "1"}),
            *(9000, 5),
        ),
    ],
)
def test_requests_as_kubernetes_counts_them(
    of: wire.PodSpec, cpu_milli: int, memory_bytes: int
) -> None:
    assert reading.pod_request(of) == Amounts(cpu_milli, memory_bytes)


def test_zones_of_a_pod() -> None:
    key = "scheduling.koordinator.sh/resource-status"
    text = '{"numaNodeResources":[{"node":1},{"node":3,"resources":{"cpu":"1"}}]}'
    assert facts({}, annotations={key: text}).numa_nodes == (1, 3)
    assert facts({}, annotations={key: "{"}).numa_nodes == ()
    assert facts().numa_nodes == ()


def test_a_node() -> None:
    status = {
        "capacity": {
            "cpu": "4",
            "memory": "9Gi",
            "kubernetes.io/batch-cpu": "1k",
            "pods": "9",
            "hugepages-2Mi": "1Gi",
        },
        "allocatable": {"cpu": "3500m", "memory": "7Gi", "hugepages-2Mi": "0", "a.b/c": "what"},
    }
    found = reading.node_facts(
        "n",
        {"pool": "a"},
        {"node.koordinator.sh/reservation": "{}", "kubeadm.alpha/x": "y"},
        msgspec.convert(status, wire.NodeStatus),
    )
    assert found.capacity == Amounts(4000, 8 << 30)  # without the pool of huge pages
    assert found.allocatable == Amounts(3500, 7 << 30)
    assert found.extended_capacity == {"kubernetes.io/batch-cpu": 1000}
    assert found.extended_allocatable == {}
    assert found.annotations == {"node.koordinator.sh/reservation": "{}"}


def test_a_report() -> None:
    status = {
        "updateTime": "2026-11-24T10:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "2500m", "memory": "3Gi"}},
            "systemUsage": {"resources": {"cpu": "-1", "memory": 5}},
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {}}],
        },
        "podsMetric": [
            {
                "namespace": "ns",
                "name": "a",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": "1", "memory": "1"}, "devices": []},
            },
            {"namespace": "ns", "name": "b", "podUsage": {"resources": {"cpu": "1"}}},
            {"namespace": "ns", "name": "c", "podUsage": {"resources": {"cpu": "x", "memory": 1}}},
        ],
        "hostApplicationMetric": None,
        "prodReclaimableMetric": {"resource": {}},
    }
    decoded = msgspec.json.decode(json.dumps(status), type=wire.NodeMetricStatus)
    found = reading.metric_facts(decoded)
    assert found.update_time_s == 1_795_514_400.0
    assert found.node_usage == Amounts(2500, 3 << 30)
    assert found.system_usage == Amounts(0, 5)
    assert list(found.pods) == ["ns/a"]
    assert found.pods["ns/a"].cpu_milli == 1000
    assert found.prod_reclaimable == Amounts()
    assert reading.metric_facts(wire.NodeMetricStatus()).prod_reclaimable is None


@pytest.mark.parametrize("text", [None, "", "soon", "2026-11-24T10:00:00", "2026-13-01T00:00:00Z"])
def test_times_that_say_nothing(text: str | None) -> None:
    assert reading.instant_s(text) is None


def test_times_with_zone_and_fraction() -> None:
    plain = reading.instant_s("2026-11-24T10:00:00Z")
    assert plain is not None
    assert reading.instant_s("2026-11-24T12:00:00.500000+02:00") == plain + 0.5


@pytest.mark.parametrize("name", ["node-", "node-x", "node-12345", "zone-1", "1", "node-²"])
def test_zones_that_are_no_numa_nodes(name: str) -> None:
    zone = {"name": name, "type": "Node", "resources": [{"name": "cpu", "allocatable": "1"}]}
    found = reading.topology_facts({}, [msgspec.convert(zone, wire.Zone)])
    assert found.zones == ()


def test_zones_without_cpu_and_memory_are_left_out() -> None:
    zone = {"name": "node-0", "resources": [{"name": "hugepages-2Mi", "allocatable": "1"}]}
    assert reading.topology_facts({}, [msgspec.convert(zone, wire.Zone)]).zones == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"cpuModel":"X","hyperThreadEnabled":true,"catL3CbmMask":"ff"}',
            CPUModel("X", True, False),
        ),
        ('{"CPUMODEL":"X","turboEnabled":null}', CPUModel("X", False, False)),
        ("{", None),
        ("null", None),
        ('{"cpuModel":1}', None),
        ("x" * 5000, None),
    ],
)
def test_the_cpu_model(text: str, expected: CPUModel | None) -> None:
    assert reading.topology_facts({reading.CPU_BASIC_INFO: text}, []).cpu == expected


texts = st.text(max_size=12) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "a.b/c"]), texts)


@given(resources, resources, st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_no_quantity_makes_it_fail(
    capacity: dict[str, Any], usage: dict[str, Any], labels: dict[str, str]
) -> None:
    status = msgspec.convert({"capacity": capacity, "allocatable": usage}, wire.NodeStatus)
    reading.node_facts("n", labels, labels, status)
    pods = [{"namespace": "a", "name": "b", "podUsage": {"resources": usage}}]
    report = msgspec.convert(
        {"podsMetric": pods, "nodeMetric": {"systemUsage": {"resources": usage}}},
        wire.NodeMetricStatus,
    )
    found = reading.metric_facts(report)
    assert all(each.cpu_milli >= 0 and each.memory_bytes >= 0 for each in found.pods.values())
    of = {"requests": capacity, "limits": usage}
    reading.pod_facts(
        *("n", "p", labels, labels),
        msgspec.convert({"containers": [{"resources": of}]}, wire.PodSpec),
        wire.PodStatus(),
    )
