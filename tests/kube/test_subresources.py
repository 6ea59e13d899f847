"""Status, scale and custom resources: what goes through them, on the fake server and a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import yaml

from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.fakekube import serving
from tests.kube.conftest import CRDS
from tests.kube.worlds import OpenWorld
from tests.realkube.control_plane import ControlPlane

OpenClient = Callable[[], AbstractAsyncContextManager[Client]]


class Whole(Object, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


SETS = Kind("apps", "v1", "ReplicaSet", "replicasets", True, Whole)
METRICS = Kind("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, Whole)
SLOS = Kind("slo.koordinator.sh", "v1alpha1", "NodeSLO", "nodeslos", False, Whole)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def open_client(request: pytest.FixtureRequest) -> OpenClient:
    """Of a server with our custom resources."""
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("plane")
        return lambda: Client(plane.admin)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Client]:
        definitions = [yaml.safe_load(file.read_text()) for file in sorted(CRDS.glob("*.yaml"))]
        async with serving(*definitions) as fake, Client(Cluster(fake.url, "the test")) as client:
            yield client

    return opened


def _object(kind: Kind[Whole], meta: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}


def _set(name: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def test_scale_is_a_view_of_replicas(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            await client.create(SETS, _set("web"), space)
            path = SETS.path(space, "web", "scale")
            scale = msgspec.json.decode(await client.raw(path))
            assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)
            more = {"spec": {"replicas": 3}}
            await client.patch(SETS, "web", more, space, subresource="scale")
            assert (await client.get(SETS, "web", space)).spec["replicas"] == 3

    asyncio.run(run())


def test_status_and_the_rest_leave_each_other_alone(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            made = await client.create(SETS, _set("web"), space)
            both = {"spec": {"replicas": 2}, "status": {"replicas": 7}}
            told = await client.patch(SETS, "web", both, space, subresource="status")
            assert (told.spec["replicas"], told.status["replicas"]) == (1, 7)
            assert told.metadata.generation == made.metadata.generation
            both["status"]["replicas"] = 9
            told = await client.patch(SETS, "web", both, space)
            assert (told.spec["replicas"], told.status["replicas"]) == (2, 7)
            assert told.metadata.generation == made.metadata.generation + 1

    asyncio.run(run())


def test_a_custom_resource_has_its_status_apart(open_client: OpenClient) -> None:
    async def run() -> None:
        async with open_client() as client:
            name, status = "apart", {"updateTime": "2026-11-26T10:00:00Z"}
            body = _object(METRICS, {"name": name}, {}) | {"status": status}
            made = await client.create(METRICS, body)
            assert made.status == {}
            told = await client.patch(METRICS, name, {"status": status}, subresource="status")
            assert told.status == status
            wrong = {"status": {"updateTime": 7}}
            with pytest.raises(RefusedError) as caught:
                await client.patch(METRICS, name, wrong, subresource="status")
            assert caught.value.status == 422
            await client.delete(METRICS, name)

    asyncio.run(run())


def test_a_custom_resource_is_never_replaced_blindly(open_client: OpenClient) -> None:
    async def run() -> None:
        async with open_client() as client:
            name = "blind"
            with pytest.raises(RefusedError) as caught:  # of what it is, it must say itself
                await client.create(SLOS, {"metadata": {"name": name}, "spec": {}})
            assert caught.value.status == 400
            made = await client.create(SLOS, _object(SLOS, {"name": name}, {}))
            with pytest.raises(RefusedError) as caught:
                await client.replace(SLOS, name, _object(SLOS, {"name": name}, {}))
            assert caught.value.status == 422
            known = {"name": name, "resourceVersion": made.metadata.resource_version}
            spec = {"resourceUsedThresholdWithBE": {"enable": True, "unheard": 1}}
            kept = await client.replace(SLOS, name, _object(SLOS, known, spec))
            assert kept.spec == {"resourceUsedThresholdWithBE": {"enable": True}}
            with pytest.raises(RefusedError) as caught:
                await client.replace(SLOS, name, _object(SLOS, known, {}))
            assert caught.value.conflict
            await client.delete(SLOS, name)

    asyncio.run(run())
