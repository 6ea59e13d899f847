"""The same NodeSLO, Node and pods given to koordlet through an API server, and the reference's
figures: equal files."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordlet.daemon.membership import Membership
from koordlet.decision.resource import Resource
from tests.cluster.whole.cluster import CRDS
from tests.cluster.whole.vectors import TIER, VECTORS, PodCase, Vector
from tests.daemon.everything import FEATURES
from tests.daemon.world import NO_ALARMS, NOT_SERVED, World, write_config
from tests.fakekube import FakeKube, serving

MakeWorld = Callable[..., World]
NODE = "node-1"
SETTLED_S = 20.0
"""Of the kernel's time: quotas change in steps."""
PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
_KUBE = '[cluster]\napi = "{0}"\nkubelet = false\n'
_VENDOR = {str(Resource.CPU_BVT_WARP_NS), str(Resource.SYSCTL_GROUP_IDENTITY)}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: each.name.replace(" ", "-"))
def test_the_files_are_those_of_the_reference(make_world: MakeWorld, vector: Vector) -> None:
    found = asyncio.run(_files(make_world, vector))
    wanted = {**{_key(*at): text for at, text in vector.expected.items()}, **vector.files}
    assert found == wanted, f"{vector.source}: {found}"
    for at, text in vector.others.items():
        assert text != vector.expected[at]
        assert f"| {vector.row}" in PAGE.read_text()


def _key(place: str, resource: Resource) -> str:
    return f"{place} {resource}"


async def _files(make_world: MakeWorld, vector: Vector) -> dict[str, str]:
    definitions = [yaml.safe_load(file.read_text()) for file in sorted(CRDS.glob("slo*.yaml"))]
    async with serving(*definitions) as fake:
        world = _machine(make_world, vector)
        kubeconfig = world.directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(fake.url)))
        write_config(world.directory, _KUBE.format(kubeconfig) + NO_ALARMS, NOT_SERVED)
        _tell(fake, vector, world)
        features = set(FEATURES) if vector.machine.get("anolis") else set(FEATURES) - _VENDOR
        world.start(tuple(sorted(features)))
        _kubelet(world, vector)
        membership = Membership(world.engine, world._change)
        membership.begin()
        task = asyncio.create_task(membership.run())
        try:
            async with asyncio.timeout(60):
                while not _knows_all(membership, world, vector):
                    await asyncio.sleep(0.01)
            world.answer()
            world.run(SETTLED_S)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return {
            **{_key(*at): _text(world, vector, *at) for at in vector.expected},
            **{path: _whole(world, path) for path in vector.files},
        }


def _knows_all(membership: Membership, world: World, vector: Vector) -> bool:
    member = membership.member
    if member is None or member.node is None or member.slo is None or member.pods is None:
        return False
    known = {pod.uid for pod in world.parts.state.pods() if pod.labels}
    return member.pods.synced and known >= {_uid(pod) for pod in vector.pods if pod.qos}


def _machine(make_world: MakeWorld, vector: Vector) -> World:
    """With the pods' cgroups as kubelet and the runtime leave them."""
    world = make_world(NO_ALARMS, vector.layout, **vector.machine)
    for pod in vector.pods:
        kube_qos = pod.kube_qos.lower()
        made = world.host.make_pod("cgroupfs", kube_qos, _uid(pod), [_container(pod)])
        if pod.demand:
            world.host.spawn(made.containers[0], demand_cores=pod.demand, threads=16)
    if vector.system:
        world.application("system", vector.system, threads=16)
    return world


def _kubelet(world: World, vector: Vector) -> None:
    """What it wrote of requests and limits: pods of batch resources have neither for it."""
    for pod in vector.pods:
        for place in (f"pod:{pod.name}", pod.name):
            group = _cgroup(vector, place)
            if pod.kube_qos == "BestEffort":
                world.parts.cgroups.write(group, Resource.CPU_SHARES, 2)
            if pod.quota_us > 0:
                world.parts.cgroups.write(group, Resource.CPU_QUOTA_US, pod.quota_us)


def _tell(fake: FakeKube, vector: Vector, world: World) -> None:
    """What an API server has before koordlet starts."""
    store = fake.store
    meta = {"name": NODE, "annotations": dict(vector.annotations)}
    store.create(fake.resource("nodes"), "", {"metadata": meta, "status": {}})
    slo = {"metadata": {"name": NODE}, "spec": dict(vector.slo)}
    store.create(fake.resource("nodeslos"), "", slo)
    for pod in vector.pods:
        made = store.create(fake.resource("pods"), "default", _object(pod))
        # The fake server gives each a uid, and the cgroups are there already.
        made["metadata"]["uid"] = _uid(pod)
        _replace(fake, made)


def _replace(fake: FakeKube, tree: dict[str, Any]) -> None:
    resource = fake.resource("pods")
    name = (tree["metadata"]["namespace"], tree["metadata"]["name"])
    fake.store._put(resource, name, None, tree)


def _object(pod: PodCase) -> dict[str, Any]:
    amounts = {"requests": dict(pod.requests), "limits": dict(pod.limits)}
    status = {"name": "main", "containerID": f"containerd://{_container(pod)}"}
    labels = {"koordinator.sh/qosClass": pod.qos} if pod.qos else {}
    return {
        "metadata": {"name": pod.name, "labels": labels, "annotations": dict(pod.annotations)},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": amounts}]},
        "status": {
            "phase": "Running",
            "qosClass": pod.kube_qos,
            "containerStatuses": [status],
        },
    }


def _uid(pod: PodCase) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, pod.name))


def _container(pod: PodCase) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, pod.name).hex * 2


def _cgroup(vector: Vector, place: str) -> str:
    if place == TIER:
        return "kubepods/besteffort"
    name = place.removeprefix("pod:")
    (pod,) = [each for each in vector.pods if each.name == name]
    tier = "" if pod.kube_qos == "Guaranteed" else f"/{pod.kube_qos.lower()}"
    group = f"kubepods{tier}/pod{_uid(pod)}"
    return group if place.startswith("pod:") else f"{group}/{_container(pod)}"


def _text(world: World, vector: Vector, place: str, resource: Resource) -> str:
    path = world.parts.cgroups.path(_cgroup(vector, place), resource)
    return world.host.read(path).decode().strip()


def _whole(world: World, path: str) -> str:
    return world.host.read(path).decode().replace(" ", "").strip()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {}}],
    }
