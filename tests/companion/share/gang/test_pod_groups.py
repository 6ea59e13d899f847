"""The controller of PodGroups on the fake API server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.kube.gang_shapes import (
    CORE_POD_GROUPS,
    POD_GROUPS,
    CorePodGroup,
    PodGroup,
)
from koord_scheduler.kube.gangs import gang_of_core, gang_of_group
from koord_scheduler.share.gang.declared import CoschedulingArgs, Source
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.companion.running import PODS, companion, definitions, make, node, tree
from tests.fakekube import FakeKube
from tests.kube.worlds import World, fake_world, until

PART = next(part for part in PARTS if part.name == "podgroup")
NETWORK = next(part for part in PARTS if part.name == "networktopology")
TOPOLOGIES = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ClusterNetworkTopology",
    "clusternetworktopologies",
    False,
    Object,
)
GROUPS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups", True, Object)
LABEL = "pod-group.scheduling.sigs.k8s.io"


async def _pod(world: World, name: str, node: str = "", phase: str = "Pending") -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}
    meta = {"name": name, "labels": {LABEL: "g"}, "ownerReferences": [owner]}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    await make(world, PODS, {"metadata": meta, "spec": spec}, world.namespace)
    await _phase(world, name, phase)


async def _phase(world: World, name: str, phase: str) -> None:
    body = {"status": {"phase": phase}}
    await world.client.patch(PODS, name, body, world.namespace, subresource="status")


def _status(fake: FakeKube, world: World) -> dict[str, Any]:
    found: dict[str, Any] = tree(fake, "podgroups", "g", world.namespace).get("status") or {}
    return found


@pytest.mark.parametrize("apart", [False, True])
def test_the_status_follows_the_pods(apart: bool) -> None:
    """``apart``: the definition, another's, keeps the status as a subresource."""
    every = definitions()
    for each in every:
        if apart and each["spec"]["names"]["kind"] == "PodGroup":
            each["spec"]["versions"][0]["subresources"] = {"status": {}}

    async def story() -> None:
        async with fake_world(*every) as (world, fake), companion(world, PART):
            body = {"metadata": {"name": "g"}, "spec": {"minMember": 2}}
            await make(world, GROUPS, body, world.namespace)
            await until(lambda: _status(fake, world).get("phase") == "Pending")
            await _pod(world, "p0")
            await _pod(world, "p1")
            await until(lambda: _status(fake, world).get("phase") == "Scheduling")
            found = _status(fake, world)
            assert found["occupiedBy"] == f"{world.namespace}/job"
            assert found["scheduleStartTime"].endswith("Z")
            await _pod(world, "p2", "n1", "Running")
            await _pod(world, "p3", "n1", "Running")
            await until(lambda: _status(fake, world).get("phase") == "Running")
            assert _status(fake, world)["running"] == 2
            await _phase(world, "p2", "Succeeded")
            await _phase(world, "p3", "Succeeded")
            await until(lambda: _status(fake, world).get("phase") == "Finished")
            for name in ("p0", "p1", "p2", "p3"):
                await world.client.delete(PODS, name, world.namespace)
            await until(lambda: _status(fake, world).get("phase") == "Pending")

    asyncio.run(story())


def test_objects_become_gangs() -> None:
    args = CoschedulingArgs()
    meta = {
        "name": "g",
        "namespace": "a",
        "creationTimestamp": "1970-01-01T00:01:00Z",
        "annotations": {
            "gang.scheduling.koordinator.sh/groups": '["a/h"]',
            f"{LABEL}/match-policy": "only-waiting",
            "other": "text",
        },
    }
    tree_ = {"metadata": meta, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 5}}
    group = _decoded(POD_GROUPS, tree_, PodGroup)
    found = gang_of_group(group, args)
    assert (found.id, found.minimum, found.wait_s, found.created_s) == ("a/g", 3, 5.0, 60.0)
    assert (found.group, found.policy) == ("a/g,a/h", "only-waiting")
    assert "other" not in group.metadata.annotations
    policy = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}, "metadata": meta}
    core = gang_of_core(_decoded(CORE_POD_GROUPS, policy, CorePodGroup), args)
    assert (core.minimum, core.source) == (4, Source.CORE)
    basic = {"spec": {"schedulingPolicy": {"basic": {}}}, "metadata": meta}
    assert gang_of_core(_decoded(CORE_POD_GROUPS, basic, CorePodGroup), args).minimum == 0


def _decoded(kind: Kind[Any], body: dict[str, Any], shape: type[Any]) -> Any:
    assert kind.shape is shape
    return msgspec.json.decode(msgspec.json.encode(body), type=shape)


def test_the_status_of_the_network_shows_its_domains() -> None:
    async def story() -> None:
        async with fake_world(*definitions()) as (world, fake):
            await node(world, "n1", labels={"block": "b1"})
            await node(world, "n2", labels={"block": "b2"})
            layers = [{"topologyLayer": "block", "labelKey": ["block"]}]
            body = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": layers}}
            await make(world, TOPOLOGIES, body)
            async with companion(world, NETWORK):
                await until(lambda: len(_details(fake)) == 3)
                assert _details(fake)[1] == {
                    "topologyInfo": {"topologyLayer": "block", "topologyName": "b1"},
                    "parentTopologyInfo": {
                        "topologyLayer": "ClusterTopologyLayer",
                        "topologyName": "",
                    },
                    "childTopologyLayer": "NodeTopologyLayer",
                    "childTopologyNames": ["n1"],
                    "nodeNum": 1,
                }

    asyncio.run(story())


def _details(fake: FakeKube) -> list[Any]:
    found = tree(fake, "clusternetworktopologies", "default").get("status") or {}
    details: list[Any] = found.get("detailStatus") or []
    return details
