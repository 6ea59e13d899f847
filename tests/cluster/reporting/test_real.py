"""The same on a real kube-apiserver: it takes what is written, keeps what others wrote, and
kubectl shows it."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordlet.actuator.evict.api import Mode
from koordlet.actuator.evict.executor import EvictResult
from koordlet.actuator.evict.journal import Begun
from koordlet.cluster.access import NEEDS
from koordlet.cluster.reporting import pod_notes
from koordlet.cluster.reporting.kinds import DEVICES, NODE_METRICS, TOPOLOGIES
from koordlet.cluster.reporting.metric_reporter import MetricReporter
from koordlet.cluster.reporting.own_objects import OwnObjects
from koordlet.cluster.reporting.pod_notes import PodNotes
from koordlet.cluster.shapes import NODES, PODS
from koordlet.decision import metrics as k
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster, Material
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.actuator.evict.test_api import begun, way
from tests.cluster.reporting.rig import GIB, Rig, be_pod, make_node, make_pod, quick
from tests.cluster.reporting.test_device import INVENTORY
from tests.cluster.reporting.test_pod_notes import BAD, outcome
from tests.kube.conftest import defined, plane, real
from tests.kube.kinds import NAMESPACES
from tests.kube.worlds import WITHIN_S, until
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl

__all__ = ["defined", "plane", "quick", "real"]
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("quick")]
ACCOUNTS = Kind("", "v1", "ServiceAccount", "serviceaccounts", True, Object)
BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, Object)


RBAC = "rbac.authorization.k8s.io/v1"
_numbers = itertools.count()


def _unused(name: str) -> str:
    """A test that runs again finds what it made before."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


async def namespace(client: Client) -> str:
    """A new one where pods can be made: nobody else makes their account here."""
    name = _unused("jobs")
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, name)
    return name


def play(plane: ControlPlane, story: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client(plane.admin, per_second=1e6, burst=1000) as client:
            await story(client)

    asyncio.run(run())


def shown(plane: ControlPlane, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl(plane, "get", *what, "-o", "json"))
    return found


async def holds(looks: Callable[[], bool]) -> None:
    """As ``until``, for looks that start a process."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(looks):
            await asyncio.sleep(0.1)


def test_a_node_metric(plane: ControlPlane) -> None:
    async def story(client: Client) -> None:
        rig = Rig(_unused("metric-node"))
        reporter = MetricReporter(rig.lent)
        head = {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric"}
        body = {**head, "metadata": {"name": rig.node.name, "labels": {"mine": "x"}}, "spec": {}}
        await client.create(NODE_METRICS, body)
        rig.state.all = (be_pod("u1"),)
        rig.use(10, 2.0)
        rig.measure(10, {(k.POD_CPU_USAGE, ("u1",)): 1.5, (k.POD_MEMORY_USAGE, ("u1",)): GIB})
        async with rig.reporting(client, reporter):
            await until(lambda: reporter.written == 1)
            there = await asyncio.to_thread(shown, plane, "nodemetric", rig.node.name)
            assert there["metadata"]["labels"] == {"mine": "x"}
            used = there["status"]["nodeMetric"]
            assert used["nodeUsage"]["resources"] == {"cpu": "2", "memory": "4Gi"}
            assert used["aggregatedNodeUsages"][0]["duration"] == "5m"
            assert there["status"]["podsMetric"][0]["podUsage"]["resources"]["cpu"] == "1500m"
            spec = {"metricCollectPolicy": {"reportIntervalSeconds": 30}}
            await client.patch(NODE_METRICS, rig.node.name, {"spec": spec})
            await until(lambda: reporter.policy.interval_s == 30.0)
            rig.state.all = ()
            rig.use(31, 2.0)
            await until(lambda: reporter.written == 2)
            there = await asyncio.to_thread(shown, plane, "nodemetric", rig.node.name)
            assert "podsMetric" not in there["status"]
            assert there["spec"] == spec

    play(plane, story)


def test_device_and_topology(plane: ControlPlane) -> None:
    async def story(client: Client) -> None:
        rig = Rig(_unused("own-node"))
        rig.inventory = INVENTORY
        objects = OwnObjects(rig.lent)
        await make_node(client, rig)
        async with rig.reporting(client, objects):
            await rig.passes(lambda: objects.written == 2)
            name = rig.node.name
            topology = await asyncio.to_thread(shown, plane, "noderesourcetopology", name)
            assert len(topology["metadata"]["annotations"]) == 8
            assert topology["metadata"]["ownerReferences"][0]["name"] == name
            device = await asyncio.to_thread(shown, plane, "device", name)
            assert device["metadata"]["labels"]["node.koordinator.sh/gpu-vendor"] == "nvidia"
            assert device["spec"]["devices"][0]["conditions"][0]["reason"] == "DeviceHealthy"
            await asyncio.sleep(1.0)
            assert objects.written == 2  # the server gives back what was written
            amounts = dict.fromkeys(("capacity", "allocatable", "available"), "1k")
            topology["zones"][0]["resources"].append({"name": "example.com/x", **amounts})
            patch = {"zones": topology["zones"], "metadata": {"labels": {"mine": "x"}}}
            await client.patch(TOPOLOGIES, name, patch)
            label = "node.koordinator.sh/enable-numa-reservation"
            await client.patch(NODES, name, {"metadata": {"labels": {label: "true"}}})
            rig.member.node = await client.get(NODES, name)
            rig.inventory = type(INVENTORY)()
            await rig.passes(lambda: objects.written == 4)
            topology = await asyncio.to_thread(shown, plane, "noderesourcetopology", name)
            assert topology["metadata"]["labels"]["mine"] == "x"
            assert "example.com/x" in json.dumps(topology["zones"][0])
            assert "example.com/x" not in json.dumps(topology["zones"][1])
            assert topology["metadata"]["labels"][label] == "true"
            device = await asyncio.to_thread(shown, plane, "device", name)
            assert device["spec"]["devices"] == []
            assert "node.koordinator.sh/gpu-vendor" not in device["metadata"].get("labels", {})
            await asyncio.sleep(1.0)
            assert objects.written == 4
            assert (await client.get(DEVICES, name)).metadata.name == name

    play(plane, story)


def test_conditions_and_events(plane: ControlPlane) -> None:
    async def story(client: Client) -> None:
        rig = Rig(_unused("notes-node"))
        notes = PodNotes(rig.lent)
        jobs = await namespace(client)
        async with rig.reporting(client, notes):
            uid = await make_pod(client, "bad", jobs, rig.node.name)
            ready = {"type": "Ready", "status": "True"}
            body = {"status": {"conditions": [ready]}}
            await client.patch(PODS, "bad", body, jobs, subresource="status", strategic=True)
            rig.state.all = (be_pod(uid, "bad", jobs, faults=BAD), be_pod("u2", "bad", jobs))
            await until(lambda: notes.written == 1)

            def described() -> str:
                return kubectl(plane, "describe", "pod", "-n", jobs, "bad")

            await holds(lambda: "InvalidAnnotation" in described())
            text = await asyncio.to_thread(described)
            assert "koordinator.sh/AnnotationsRefused" in text and "Ready" in text
            assert "koordinator.sh/cpuBurst $.policy: must be one of none, auto" in text
            assert pod_notes.COMPONENT in text
            notes.heard(outcome(EvictResult.BEGUN, uid, "bad", namespace=jobs))
            notes.heard(outcome(EvictResult.EVICTED, uid, "bad", "SIGTERM", namespace=jobs))
            await holds(lambda: "evictPodSuccess" in described())
            assert "koordinator.sh/Evicted" in await asyncio.to_thread(described)

    play(plane, story)


async def least(client: Client, plane: ControlPlane, jobs: str) -> Cluster:
    """A service account that may do what ``NEEDS`` lists, and nothing else."""
    rules = [
        {"apiGroups": [need.group], "resources": [need.resource], "verbs": list(need.verbs)}
        for need in NEEDS
    ]
    head = {"apiVersion": RBAC}
    role = {**head, "kind": "ClusterRole", "metadata": {"name": jobs}, "rules": rules}
    binding = {
        **head,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": jobs},
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "ClusterRole", "name": jobs},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": jobs}],
    }
    await client.create(Kind(*RBAC.split("/"), "ClusterRole", "clusterroles", False, Object), role)
    kind = Kind(*RBAC.split("/"), "ClusterRoleBinding", "clusterrolebindings", False, Object)
    await client.create(kind, binding)
    token = await asyncio.to_thread(kubectl, plane, "create", "token", "default", "-n", jobs)
    return dataclasses.replace(plane.admin, token=Material(text=token.strip().encode()))


def test_the_rights_that_are_declared_are_enough(plane: ControlPlane) -> None:
    async def story(client: Client) -> None:
        jobs, rig = await namespace(client), Rig(_unused("least-node"))
        parts = MetricReporter(rig.lent), OwnObjects(rig.lent), PodNotes(rig.lent)
        metric, objects, notes = parts
        rig.inventory = INVENTORY
        await make_node(client, rig)
        uid = await make_pod(client, "bad", jobs, rig.node.name)
        rig.state.all = (be_pod(uid, "bad", jobs, faults=BAD),)
        head = {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric"}
        body = {**head, "metadata": {"name": rig.node.name}, "spec": {}}
        await client.create(NODE_METRICS, body)
        cluster = await least(client, plane, jobs)
        rig.use(10, 2.0)
        async with Client(cluster) as ours:
            with pytest.raises(RefusedError) as caught:
                await ours.delete(PODS, "bad", jobs)
            assert caught.value.status == 403
            async with rig.reporting(ours, *parts):
                await rig.passes(lambda: objects.written == 2 and notes.written == 1)
                await until(lambda: metric.written == 1)
                patch = {"metadata": {"labels": {"node.koordinator.sh/gpu-vendor": "x"}}}
                await client.patch(DEVICES, rig.node.name, patch)
                await client.patch(TOPOLOGIES, rig.node.name, {"topologyPolicies": ["x"]})
                await rig.passes(lambda: objects.written == 4)
                for _ in range(2):  # the second one only counts the event
                    notes.heard(outcome(EvictResult.FAILED, uid, "bad", namespace=jobs))
                assert rig.problems == {}
            await ours.evict(jobs, "bad", uid=uid)

    play(plane, story)


def test_evictions_and_budgets(plane: ControlPlane) -> None:
    async def story(client: Client) -> None:
        jobs = await namespace(client)
        uid = await make_pod(client, "be", jobs)
        # A pod that is not running needs no budget.
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "conditions": conditions}
        patch = {"status": status}
        await client.patch(PODS, "be", patch, jobs, subresource="status", strategic=True)
        body = {
            "metadata": {"name": "none"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "be"}}},
        }
        await client.create(BUDGETS, body, jobs)
        for mode in (Mode.ONLY_API, Mode.API_FIRST):
            progress = way(client, mode).begin(_begun(uid, jobs))
            assert not isinstance(progress, str)
            await until(lambda progress=progress: progress.done)
            assert "a disruption budget does not allow it" in progress.error
            assert progress.forbids == (mode is Mode.ONLY_API)
        await client.delete(BUDGETS, "none", jobs)
        stranger = way(client, Mode.ONLY_API).begin(_begun("another-one", jobs))
        assert not isinstance(stranger, str)
        await until(lambda: stranger.done)
        assert "acts by itself" in stranger.error and not stranger.forbids
        progress = way(client, Mode.ONLY_API).begin(_begun(uid, jobs))
        assert not isinstance(progress, str)
        await until(lambda: progress.done)
        assert progress.error == ""

    play(plane, story)


def _begun(uid: str, namespace: str) -> Begun:
    return begun(uid, namespace=namespace)
