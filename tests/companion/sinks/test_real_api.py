"""Quota profiles, recommendations and YARN on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from koord_scheduler.daemon import recommender
from koord_scheduler.daemon import yarn as yarn_controller
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.yarn import Setup
from koord_scheduler.recommend.policy import Policy
from koord_scheduler.recommend.record import HISTORY
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.times import instant
from tests.companion.running import NODES, PODS, companion, make, node
from tests.companion.sinks.yarn_fake import FakeYarn, fake_yarn
from tests.kube.worlds import World, world_on
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl

pytestmark = pytest.mark.cluster
MINE = tuple(part for part in PARTS if part.name in ("quotaprofile", "recommender", "yarn"))
PROFILES = Kind("quota.koordinator.sh", "v1alpha1", "ElasticQuotaProfile", "elasticquotaprofiles",
                True, Object)  # fmt: skip
RECOMMENDATIONS = Kind("analysis.koordinator.sh", "v1alpha1", "Recommendation", "recommendations",
                       True, Object)  # fmt: skip
METRICS = Kind("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, Object)
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
AGENT, NODE = "nm-1:8041", "of-yarn"
WITHIN_S = 60.0


def _got(plane: ControlPlane, *what: str) -> Any:
    return msgspec.json.decode(kubectl(plane, "get", *what, "-o", "json"))


async def _until(plane: ControlPlane, *what: str, holds: Any) -> Any:
    """What ``kubectl get`` says, once it is as it should be."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = await asyncio.to_thread(_got, plane, *what)
            if holds(found):
                return found
            await asyncio.sleep(0.2)


async def _objects(world: World) -> None:
    origin = {"resources": {CPU: "8000", MEMORY: "16Gi"}}
    annotations = {
        "node.koordinator.sh/originExtendedAllocatable": json.dumps(origin),
        "node.yarn.koordinator.sh/node-id": AGENT,
    }
    await node(world, NODE, labels={"pool": NODE}, annotations=annotations)
    selector = {"matchLabels": {"pool": NODE}}
    spec: dict[str, Any] = {"quotaName": "root", "nodeSelector": selector, "resourceRatio": "0.5"}
    await make(world, PROFILES, {"metadata": {"name": "p"}, "spec": spec}, world.namespace)
    target = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
    body = {"metadata": {"name": "web"}, "spec": {"target": target}}
    await make(world, RECOMMENDATIONS, body, world.namespace)
    pod = {
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "web"}]},
    }
    await make(world, PODS, pod, world.namespace)
    await make(world, METRICS, {"metadata": {"name": NODE}, "spec": {}})


async def _reports(world: World) -> None:
    usage = {"resources": {"cpu": "500m", "memory": "100Mi"}}
    pods = [{"namespace": world.namespace, "name": "web", "podUsage": usage}]
    while True:
        status = {"updateTime": instant(time.time()), "podsMetric": pods}
        await world.client.patch(METRICS, NODE, {"status": status}, subresource="status")
        await asyncio.sleep(1.0)


@contextlib.asynccontextmanager
async def playing(
    world: World, monkeypatch: pytest.MonkeyPatch, us: Cluster | None = None
) -> AsyncIterator[FakeYarn]:
    """The three parts at work on objects that are made here. ``us``: as whom they ask, if not as
    the test."""
    monkeypatch.setattr(recommender, "WRITE_S", 1.0)
    monkeypatch.setattr(yarn_controller, "EVERY_S", 0.5)
    monkeypatch.setattr(yarn_controller, "SETTLE_S", 0.1)
    monkeypatch.setattr(yarn_controller, "GONE_S", 0.0)
    policy = Policy(least_samples=3, least_history_s=0.0, sample_every_s=0.0)
    async with fake_yarn() as fake:
        fake.join(AGENT)
        fake.use(AGENT, 2, 1024)
        extra = {"yarn": Setup({"": (fake.url,)}), "recommend_policy": policy}
        async with companion(world, *MINE, us=us, **extra):
            try:
                await _objects(world)
                reports = asyncio.create_task(_reports(world))
                try:
                    yield fake
                finally:
                    reports.cancel()
            finally:
                await world.client.delete(NODES, NODE)
                await world.client.delete(METRICS, NODE)


def test_a_story(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with world_on(plane.admin) as world, playing(world, monkeypatch) as fake:
            await settled(plane, world)
            assert fake.total(AGENT) == (8, 16384)

    asyncio.run(story())


async def settled(plane: ControlPlane, world: World) -> None:
    """Until each has written what it should, which is checked."""
    space = ("-n", world.namespace)
    quota = await _until(
        plane, "elasticquotas,eqp", *space, holds=lambda all_: len(all_["items"]) == 2
    )
    by_kind = {each["kind"]: each for each in quota["items"]}
    assert by_kind["ElasticQuota"]["spec"]["min"] == {"cpu": "5", "memory": "500"}
    labels = by_kind["ElasticQuota"]["metadata"]["labels"]
    tree_id = "quota.scheduling.koordinator.sh/tree-id"
    assert labels[tree_id] == by_kind["ElasticQuotaProfile"]["metadata"]["labels"][tree_id]

    recommended = await _until(
        plane,
        "recom",
        "web",
        *space,
        holds=lambda each: (
            each.get("status", {}).get("podStatus")
            and HISTORY in each["metadata"].get("annotations", {})
        ),
    )
    container = recommended["status"]["podStatus"]["containerStatuses"][0]
    assert container["resources"] == {"cpu": "594m", "memory": "119Mi"}
    columns = (await asyncio.to_thread(kubectl, plane, "get", "recom", *space)).split("\n")
    assert "594m" in columns[1] and "119Mi" in columns[1]

    key = "node.koordinator.sh/thirdPartyAllocations"
    annotated = await _until(
        plane, "node", NODE, holds=lambda each: key in each["metadata"]["annotations"]
    )
    (entry,) = json.loads(annotated["metadata"]["annotations"][key])["allocations"]
    assert entry["name"] == "hadoop-yarn" and entry["resources"] == {CPU: "2k", MEMORY: "1Gi"}
