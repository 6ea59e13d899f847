"""What counts as taken on a fake API server: resizes, pods of others, annotations, quotas."""

from __future__ import annotations

import pytest

from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import PODS, Tree, Whole
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.kube.worlds import until

GANG = "gang.scheduling.koordinator.sh/"
QUOTA = "scheduling.sigs.k8s.io"
QUOTAS = Kind(QUOTA, "v1alpha1", "ElasticQuota", "elasticquotas", True, Whole)


def test_a_pod_that_its_binding_would_make_unwritable_is_told_so() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        big = {"example.com/a": "x" * (262_000 // 2), "example.com/b": "x" * (262_100 // 2)}
        async with scheduling(rig.here):
            gang = {f"{GANG}name": "g", f"{GANG}min-available": "2"}
            await rig.pod("big", annotations={**gang, **big})
            await rig.pod("small", annotations=gang)
            said = await rig.until_said("big", "of which 262144 are allowed")
            assert said["reason"] == "Unschedulable"
            assert not any((await rig.nodes_of()).values())
            less = {"metadata": {"annotations": {"example.com/b": None}}}
            await rig.client.patch(PODS, "big", less, SPACE)
            await rig.until_bound("big", "small")

    told(story)


def test_a_pod_that_another_scheduler_is_about_to_bind_counts() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here) as made:
            await rig.pod("theirs", cpu="2", scheduler="default-scheduler")
            about = {"status": {"nominatedNodeName": "a"}}
            await rig.client.patch(PODS, "theirs", about, SPACE, subresource="status")
            await rig.pod("ours", priority=5)
            await rig.until_said("ours", "Insufficient cpu")
            given_up = {"status": {"nominatedNodeName": None}}
            await rig.client.patch(PODS, "theirs", given_up, SPACE, subresource="status")
            await rig.until_bound("ours")
            await rig.client.patch(PODS, "theirs", about, SPACE, subresource="status")
            nominated = scheduler_of(made).parts.first.nominated
            await until(lambda: "a" in nominated)
            await rig.client.bind(SPACE, "theirs", "a", uid="")
            await until(lambda: not nominated)

    told(story)


def test_a_pod_whose_room_went_to_another_keeps_none() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        await rig.pod("high", cpu="3", priority=9, nodeName="a")
        await rig.pod("mid", cpu="4", priority=5)
        before = {"status": {"nominatedNodeName": "a"}}  # for the room that ``high`` has now
        await rig.client.patch(PODS, "mid", before, SPACE, subresource="status")
        async with scheduling(rig.here) as made:
            await rig.pod("small", cpu="1", priority=2)
            await rig.until_bound("small")
            assert not scheduler_of(made).parts.first.nominated
            await until(lambda: not scheduler_of(made).waiting["default/mid"].nominated)

    told(story)


@pytest.mark.parametrize("who", ["a user", "nobody"])
def test_a_nomination_ends_where_its_status_is_cleared(who: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here) as made:
            await rig.pod("full", cpu="2")
            await rig.until_bound("full")
            engine = scheduler_of(made).parts.first
            await rig.pod("waits", cpu="1", preemptionPolicy="Never", nodeSelector={"no": "node"})
            about = {"status": {"nominatedNodeName": "a"}}
            await rig.client.patch(PODS, "waits", about, SPACE, subresource="status")
            await until(lambda: "a" in engine.nominated)
            if who == "a user":
                cleared = {"status": {"nominatedNodeName": None}}
                await rig.client.patch(PODS, "waits", cleared, SPACE, subresource="status")
                await until(lambda: not engine.nominated)
            else:
                labels = {"metadata": {"labels": {"x": "y"}}}
                await rig.client.patch(PODS, "waits", labels, SPACE)
                await until(lambda: scheduler_of(made).waiting["default/waits"].labels)
                assert "a" in engine.nominated

    told(story)


def test_a_resize_counts_before_it_is_done_and_its_end_leaves_room() -> None:
    def has(cpu: str) -> Tree:
        return {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": cpu}}]}

    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            await rig.pod("p", cpu="1")
            await rig.until_bound("p")
            await rig.client.patch(PODS, "p", {"status": has("3")}, SPACE, subresource="status")
            await rig.pod("q", cpu="2")
            await rig.until_said("q", "Insufficient cpu")
            await rig.client.patch(PODS, "p", {"status": has("1")}, SPACE, subresource="status")
            await rig.until_bound("q")

    told(story)


def test_a_quota_makes_room_on_two_nodes() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        await rig.node("b", cpu="4")
        body = {
            "apiVersion": QUOTAS.api_version,
            "kind": QUOTAS.name,
            "metadata": {"name": "team"},
            "spec": {"min": {"cpu": "4"}, "max": {"cpu": "4", "memory": "9Gi"}},
        }
        await rig.client.create(QUOTAS, body, SPACE)
        charged = {"quota.scheduling.koordinator.sh/name": "team"}
        async with scheduling(rig.here):
            for name in ("low0", "low1"):
                await rig.pod(name, cpu="2", labels=charged)
            found = await rig.until_bound("low0", "low1")
            assert {found["low0"], found["low1"]} == {"a", "b"}
            await rig.pod("high", cpu="4", labels=charged, priority=9)
            found = await rig.until_bound("high")
            assert not {"low0", "low1"} & found.keys()
            told = {e.involved_object["name"]: e.message for e in await rig.events()}
            assert {told["low0"][-1], told["low1"][-1]} == {"a", "b"}

    told(story)
