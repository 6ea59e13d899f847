"""What is kept of an object, and what is made of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from koord_scheduler.kube import shapes
from koord_scheduler.kube.inputs import PodsByNode, inputs_of
from koord_scheduler.kube.shapes import (
    CONFIG_MAPS,
    NODE_METRICS,
    NODES,
    PODS,
    Node,
    NodeMetric,
    Pod,
    tree,
)
from koord_scheduler.kube.watches import Watches
from koordlet.kube.answers import decoded
from koordlet.kube.mirror import Change, Key
from koordlet.protocol.qos import PriorityClass, QoSClass
from tests.kube.worlds import fake_world, until

BATCH = "kubernetes.io/batch-cpu"


def _pod(name: str = "p", node: str = "n1", **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"app": "a", "koordinator.sh/qosClass": "LS"},
            "annotations": {"note": "x" * 1000, "koordinator.sh/extra": "{}"},
            "managedFields": [{"fieldsV1": {}}],
        },
        "spec": {"nodeName": node, "containers": [container], "priority": 9500, **spec},
        "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1"},
    }
    return decoded(PODS, json.dumps(body).encode())


def test_a_pod_is_its_facts() -> None:
    pod = _pod()
    facts = pod.facts
    assert (facts.key, facts.node, facts.counts) == ("ns/p", "n1", True)
    assert (facts.cpu_milli, facts.memory_bytes) == (500, 1 << 30)
    assert (facts.qos, facts.priority_class) == (QoSClass.LS, PriorityClass.PROD)
    assert pod.spec.containers == () and pod.spec.node_name == "n1" and pod.spec.priority == 9500
    assert pod.metadata.annotations == {"koordinator.sh/extra": "{}"}
    assert pod.metadata.resource_version == "" and pod.metadata.uid == ""
    assert _pod(node="").metadata.uid == "u"  # whoever changes it says which one it means


def test_what_pods_have_alike_is_kept_once() -> None:
    one, other = _pod("p"), _pod("q")
    assert one.metadata.labels is other.metadata.labels
    assert one.spec is other.spec and one.status is other.status
    assert _pod("r", node="n2").spec is not one.spec


def test_the_same_pod_again_is_equal() -> None:
    """So that a list anew tells only what differs."""
    assert _pod() == _pod() and _pod() != _pod(priority=5500)


def test_a_node_is_text_and_facts() -> None:
    body = {
        "metadata": {
            "name": "n",
            "labels": {"a": "b"},
            "annotations": {"x": "y", "node.koordinator.sh/reservation": "{}"},
        },
        "spec": {"unschedulable": True},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", BATCH: "1k"},
            "allocatable": {"cpu": "3500m", "memory": "8Gi", BATCH: "1k"},
        },
    }
    node: Node = decoded(NODES, json.dumps(body).encode())
    assert node.facts.capacity.cpu_milli == 4000 and node.facts.allocatable.cpu_milli == 3500
    assert node.facts.extended_allocatable == {BATCH: 1000}
    assert node.facts.annotations == {"node.koordinator.sh/reservation": "{}"}
    assert node.spec.unschedulable and node.status.capacity["cpu"] == "4"


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({}, True),
        ({"updateTime": "2026-11-24T10:00:00Z"}, True),
        ({"podsMetric": "nonsense"}, False),
        (None, False),
    ],
)
def test_a_report_that_cannot_be_read_is_none(status: Any, known: bool) -> None:
    body = {"metadata": {"name": "n"}, "spec": {"x": 1}}
    if status is not None:
        body["status"] = status
    metric: NodeMetric = decoded(NODE_METRICS, json.dumps(body).encode())
    assert tree(metric.spec) == {"x": 1}
    node: Node = decoded(NODES, b'{"metadata":{"name":"n"}}')
    assert (inputs_of(node, metric, (), None, None).metric is not None) is known


def test_a_report_is_kept_compressed() -> None:
    pods = [{"namespace": "n", "name": f"p{i}", "podUsage": {}} for i in range(50)]
    status = {"podsMetric": pods}
    body = json.dumps({"metadata": {"name": "n"}, "status": status}).encode()
    metric: NodeMetric = decoded(NODE_METRICS, body)
    assert tree(metric.status) == status
    assert len(bytes(metric.packed)) < len(body) / 3
    assert metric == decoded(NODE_METRICS, body)


def test_what_is_shared_is_bounded() -> None:
    """Pods with labels of their own come and go for months."""
    for number in range(10_000):
        body = {"metadata": {"name": "p", "namespace": "n", "labels": {"pod": str(number)}}}
        body["spec"] = {"nodeName": f"n{number}"}  # type: ignore[assignment]
        decoded(PODS, json.dumps(body).encode())
        metric = {"metadata": {"name": "p"}, "spec": {"x": number}}
        decoded(NODE_METRICS, json.dumps(metric).encode())
    assert len(shapes._labels) <= 4096 and len(shapes._parts) <= 512
    assert len(shapes._values) <= 20_000


def test_raw_parts_do_not_hold_their_page() -> None:
    page = b'{"metadata":{"name":"n"},"spec":{"a":1}}' + b" " * 1_000_000
    metric: NodeMetric = decoded(NODE_METRICS, page)
    assert len(bytes(metric.spec)) == 7
    assert metric.spec == msgspec.Raw(b'{"a":1}')


def test_pods_of_a_node_follow_the_changes() -> None:
    pods = PodsByNode()
    first = _pod("p")
    pods.begin({Key("ns", "p"): first})
    assert [each.key for each in pods.of("n1")] == ["ns/p"]
    waiting, bound = _pod("q", node=""), _pod("q")
    pods.take((Change(Key("ns", "q"), None, waiting),))
    assert len(list(pods.of("n1"))) == 1
    pods.take((Change(Key("ns", "q"), waiting, bound),))
    assert sorted(each.key for each in pods.of("n1")) == ["ns/p", "ns/q"]
    pods.take((Change(Key("ns", "p"), first, None), Change(Key("ns", "q"), bound, None)))
    assert list(pods.of("n1")) == []


def test_one_watch_for_all_who_ask() -> None:
    async def story() -> None:
        async with fake_world() as (world, fake):
            watches = Watches(world.client, lambda text: None)
            one = watches.of(CONFIG_MAPS, namespace=world.namespace)
            assert watches.of(CONFIG_MAPS, namespace=world.namespace) is one
            other = watches.of(CONFIG_MAPS, namespace=world.namespace, fields="metadata.name=b")
            told: list[str] = []
            end = one.listen(lambda changes: told.extend(c.key.name for c in changes))
            task = asyncio.create_task(watches.run())
            try:
                assert watches.asked() == (one, other) and watches.asked() == ()
                await one.until_synced()
                await other.until_synced()
                assert watches.unsynced() == {}
                await world.put("a", "1")
                await world.put("b", "1")
                await until(lambda: told == ["a", "b"] and len(other.objects) == 1)
                assert one.get("a", world.namespace) is not None
                end()
                late = watches.of(CONFIG_MAPS, namespace="default")
                await late.until_synced()
                await world.put("c", "1")
                await until(lambda: len(one.objects) == 3)
                assert told == ["a", "b"]
                path = f"/api/v1/namespaces/{world.namespace}/configmaps"
                assert fake.requests[f"GET {path}"] == 2
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
