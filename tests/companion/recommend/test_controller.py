"""The recommender on the fake API server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from koord_scheduler.daemon import recommender
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.kube.shapes import NODE_METRICS
from koord_scheduler.recommend.policy import Policy
from koord_scheduler.recommend.record import HISTORY
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.times import instant
from tests.companion.running import PODS, cluster, companion, make, tree
from tests.fakekube import FakeKube
from tests.kube.worlds import World, until

PART = next(part for part in PARTS if part.name == "recommender")
RECOMMENDATIONS = Kind("analysis.koordinator.sh", "v1alpha1", "Recommendation", "recommendations",
                       True, Object)  # fmt: skip
METRICS = Kind("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, Object)
EAGER = Policy(least_samples=3, least_history_s=0.0, sample_every_s=0.0)
WORKLOAD = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender, "SETTLE_S", 0.02)
    monkeypatch.setattr(recommender, "WRITE_S", 0.05)


async def _pod(world: World, name: str, *containers: dict[str, Any], revision: str = "h1") -> None:
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    labels = {"pod-template-hash": revision, "app": "web"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{revision}", "uid": "1"}
    body = {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "nodeName": "n1",
            "containers": list(containers) or [{"name": "main", "resources": requests}],
        },
    }
    await make(world, PODS, body, world.namespace)
    status = {"status": {"phase": "Running"}}
    await world.client.patch(PODS, name, status, world.namespace, subresource="status")


async def _recommendation(world: World, target: dict[str, Any], name: str = "web") -> None:
    body = {"metadata": {"name": name}, "spec": {"target": target}}
    await make(world, RECOMMENDATIONS, body, world.namespace)


async def _report(world: World, *pods: str, cpu: str = "500m", memory: str = "100Mi") -> None:
    """One more report of node n1."""
    used = [
        {
            "namespace": world.namespace,
            "name": name,
            "podUsage": {"resources": {"cpu": cpu, "memory": memory}},
        }
        for name in pods
    ]
    if not await _has(world):
        await make(world, METRICS, {"metadata": {"name": "n1"}, "spec": {}})
    status = {"updateTime": instant(time.time()), "podsMetric": used}
    await world.client.patch(METRICS, "n1", {"status": status}, subresource="status")


async def _has(world: World) -> bool:
    return bool((await world.client.page(METRICS)).items)


def _told(fake: FakeKube, world: World, name: str = "web") -> tuple[str, dict[str, Any]]:
    """The reason and what is recommended, by container."""
    status = tree(fake, "recommendations", name, world.namespace).get("status", {})
    reason = status.get("conditions", [{}])[0].get("reason", "")
    containers = (status.get("podStatus") or {}).get("containerStatuses", [])
    return reason, {each["containerName"]: each["resources"] for each in containers}


async def _until_told(
    world: World, fake: FakeKube, reason: str, *pods: str, **usage: str
) -> dict[str, Any]:
    """Reports come until ``reason`` is told."""
    async with asyncio.timeout(20):
        while _told(fake, world)[0] != reason:
            if pods:
                await _report(world, *pods, **usage)
            await asyncio.sleep(0.02)
    return _told(fake, world)[1]


def test_a_deployment_gets_what_it_uses_and_a_margin() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART, recommend_policy=EAGER):
            await _recommendation(world, WORKLOAD)
            await _until_told(world, fake, "NoPods")
            await _pod(world, "web-1")
            await _pod(world, "web-2")
            await _until_told(world, fake, "TooLittleHistory")
            found = await _until_told(world, fake, "Recommended", "web-1", "web-2")
            assert found == {"main": {"cpu": "594m", "memory": "119Mi"}}
            condition = tree(fake, "recommendations", "web", world.namespace)["status"]
            assert condition["conditions"][0]["status"] == "True"

    asyncio.run(story())


def test_a_selector_and_a_pod_of_two_containers() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART, recommend_policy=EAGER):
            target = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
            await _recommendation(world, target)
            asked = [{"cpu": "100m", "memory": "300Mi"}, {"cpu": "300m", "memory": "100Mi"}]
            await _pod(
                world,
                "web-1",
                *({"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(asked)),
            )
            usage = {"cpu": "400m", "memory": "400Mi"}
            found = await _until_told(world, fake, "Recommended", "web-1", **usage)
            cpu = {name: int(each["cpu"].removesuffix("m")) for name, each in found.items()}
            memory = {name: int(each["memory"].removesuffix("Mi")) for name, each in found.items()}
            assert 100 < cpu["c0"] < 150 < 300 < cpu["c1"] < 400
            assert 100 < memory["c1"] < 150 < 300 < memory["c0"] < 400

    asyncio.run(story())


@pytest.mark.parametrize(
    "target",
    [
        {"type": "workload"},
        {"type": "podSelector"},
        {"type": "podSelector", "podSelector": {"matchLabels": {"a b": "c"}}},
    ],
)
def test_a_target_that_means_nothing_is_told(target: dict[str, Any]) -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART, recommend_policy=EAGER):
            await _recommendation(world, target)
            assert await _until_told(world, fake, "InvalidTarget") == {}
            await world.client.patch(
                RECOMMENDATIONS, "web", {"spec": {"target": WORKLOAD}}, world.namespace
            )
            await _until_told(world, fake, "NoPods")

    asyncio.run(story())


def _record(fake: FakeKube, world: World) -> Any:
    found = tree(fake, "recommendations", "web", world.namespace)["metadata"]
    return json.loads(found.get("annotations", {}).get(HISTORY, "null"))


def test_another_process_goes_on_where_one_ended() -> None:
    async def story() -> None:
        async with cluster() as (world, fake):
            async with companion(world, PART, recommend_policy=EAGER):
                await _recommendation(world, WORKLOAD)
                await _pod(world, "web-1")
                await _until_told(world, fake, "Recommended", "web-1")
                await until(lambda: bool(_record(fake, world)))
            kept = _record(fake, world)
            # So that it can be told from what is learned in a moment.
            kept["since"] -= 5000
            kept["containers"]["main"]["samples"] += 1000
            samples = kept["containers"]["main"]["samples"]
            head = {"metadata": {"annotations": {HISTORY: json.dumps(kept)}}}
            await world.client.patch(RECOMMENDATIONS, "web", head, world.namespace)
            await world.client.delete(PODS, "web-1", world.namespace)
            async with companion(world, PART, recommend_policy=EAGER):
                await _pod(world, "web-2")
                await _report(world, "web-2")

                async def more() -> None:
                    while _record(fake, world)["containers"]["main"]["samples"] <= samples:
                        await _report(world, "web-2")
                        await asyncio.sleep(0.05)

                await asyncio.wait_for(more(), 20)
                assert _told(fake, world)[1] == {"main": {"cpu": "594m", "memory": "119Mi"}}
                assert _record(fake, world)["containers"]["main"]["tried"] > 0
                assert _record(fake, world)["since"] == kept["since"]

    asyncio.run(story())


def test_a_record_that_was_tampered_with_is_not_used() -> None:
    async def story() -> None:
        async with cluster() as (world, fake):
            await _recommendation(world, WORKLOAD)
            head = {"metadata": {"annotations": {HISTORY: '{"version": 1}'}}}
            await world.client.patch(RECOMMENDATIONS, "web", head, world.namespace)
            async with companion(world, PART, recommend_policy=EAGER):
                await _until_told(world, fake, "NoPods")
                status = tree(fake, "recommendations", "web", world.namespace)["status"]
                assert "was not used" in status["conditions"][0]["message"]
                await _pod(world, "web-1")
                await _until_told(world, fake, "Recommended", "web-1")
                await until(lambda: "containers" in (_record(fake, world) or {}))

    asyncio.run(story())


def test_a_container_that_is_gone_is_forgotten() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART, recommend_policy=EAGER):
            await _recommendation(world, WORKLOAD)
            await _pod(world, "web-1", {"name": "old"})
            assert set(await _until_told(world, fake, "Recommended", "web-1")) == {"old"}
            await _pod(world, "web-2", {"name": "new"}, revision="h2")
            await world.client.delete(PODS, "web-1", world.namespace)

            async def told() -> None:
                while set(_told(fake, world)[1]) != {"new"}:
                    await _report(world, "web-2")
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(told(), 20)

    asyncio.run(story())


def test_pods_of_others_and_old_reports_teach_nothing() -> None:
    async def story() -> None:
        async with (
            cluster() as (world, fake),
            companion(world, PART, recommend_policy=EAGER) as made,
        ):
            await _recommendation(world, WORKLOAD)
            await _pod(world, "web-1")
            await _until_told(world, fake, "TooLittleHistory")
            await _report(world, "other-1")
            status = {
                "updateTime": instant(time.time() - 3600),
                "podsMetric": [
                    {
                        "namespace": world.namespace,
                        "name": "web-1",
                        "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                    }
                ],
            }
            for number in range(5):
                status["podsMetric"][0]["priority"] = f"p{number}"  # type: ignore[index]
                await world.client.patch(METRICS, "n1", {"status": status}, subresource="status")
            metrics = made.context.watches.of(NODE_METRICS)
            await until(lambda: b"p4" in bytes(next(iter(metrics.objects.values())).status))
            name = "koord_scheduler_recommender_samples_total"
            page = made.context.metrics.page()
            assert f"# TYPE {name} counter" in page and f"\n{name} " not in page
            assert _told(fake, world)[0] == "TooLittleHistory"

    asyncio.run(story())


def test_another_recommendation_of_the_name_gets_nothing_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recommender, "_is_stale", lambda *_: True)

    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART, recommend_policy=EAGER):
            await _recommendation(world, WORKLOAD)
            await _until_told(world, fake, "NoPods")
            fake.faults.refuse_watches()  # so that the process does not hear of it
            fake.faults.cut_watches()
            kind = fake.resource("recommendations")
            fake.store.delete(kind, (world.namespace, "web"), {})
            await _recommendation(world, WORKLOAD)
            asked = fake.requests.total()
            async with asyncio.timeout(20):
                while fake.requests.total() < asked + 4:
                    await asyncio.sleep(0.02)
            assert _told(fake, world) == ("", {})

    asyncio.run(story())
