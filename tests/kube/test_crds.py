"""A real API server takes our definitions and checks by them, and kubectl shows their columns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES
from koordlet.protocol.objects.node_metric import NodeMetricStatus, NodeUsage, ResourceMap
from koordlet.protocol.slo_defaults import DEFAULTS
from tests.fakekube.crd import resource_of
from tests.kube.conftest import CRDS
from tests.protocol.facts import KINDS, Tree, whole
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl

pytestmark = pytest.mark.cluster

THEIRS = [
    pytest.param(kind, version, id=f"{kind['kind']}-{version['name']}")
    for kind in KINDS
    for version in kind["versions"]
]


def _kind(name: str) -> Kind[Object]:
    each = next(each for each in CUSTOM_RESOURCES if each.kind == name)
    return Kind(each.group, each.version, each.kind, each.plural, each.namespaced, Object)


def _made(plane: ControlPlane, name: str, body: dict[str, Any]) -> None:
    async def run() -> None:
        kind = _kind(name)
        async with Client(plane.admin) as client:
            head = {"apiVersion": kind.api_version, "kind": kind.name}
            await client.create(kind, {**head, **body})

    asyncio.run(run())


def test_columns(plane: ControlPlane) -> None:
    slo = msgspec.to_builtins(DEFAULTS)
    _made(plane, "NodeSLO", {"metadata": {"name": "n1"}, "spec": slo})
    _made(plane, "NodeMetric", {"metadata": {"name": "n1"}, "spec": {}})
    used = ResourceMap({"cpu": "1500m", "memory": "3Gi"})
    status = NodeMetricStatus(update_time="2026-11-25T10:00:00Z", node_metric=NodeUsage(used))

    async def run() -> None:
        async with Client(plane.admin) as client:
            body = {"status": status}
            await client.patch(_kind("NodeMetric"), "n1", body, subresource="status")

    asyncio.run(run())
    shown = kubectl(plane, "get", "nodemetric,nodeslo").split("\n")
    head, row = shown[0].split(), shown[1].split()
    assert head[:3] == ["NAME", "CPU", "MEMORY"]
    assert row[:3] == ["nodemetric.slo.koordinator.sh/n1", "1500m", "3Gi"]
    assert "CPU%" in shown[3] and " 65 " in shown[4]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("NodeSLO", {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}),
        ("NodeSLO", {"resourceUsedThresholdWithBE": {"enable": "yes"}}),
        ("Device", {"devices": [{"type": "gpu", "minor": "0"}]}),
    ],
)
def test_what_the_fake_refuses_the_real_one_refuses(
    plane: ControlPlane, name: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(RefusedError) as caught:
        _made(plane, name, {"metadata": {"name": "bad"}, "spec": spec})
    assert caught.value.status == 422
    each = next(each for each in CUSTOM_RESOURCES if each.kind == name)
    path = CRDS / f"{each.group}_{each.plural}.yaml"
    _, schema = resource_of(yaml.safe_load(path.read_text()))
    assert schema.admit({"metadata": {"name": "bad"}, "spec": spec})[1]


def test_what_the_fake_keeps_the_real_one_keeps(plane: ControlPlane) -> None:
    spec = {"unheard": 1, "extensions": {"mine": {"a": [1]}}, "systemStrategy": None}
    _made(plane, "NodeSLO", {"metadata": {"name": "kept"}, "spec": spec})
    real = json.loads(kubectl(plane, "get", "nodeslo", "kept", "-o", "json"))["spec"]
    path = CRDS / "slo.koordinator.sh_nodeslos.yaml"
    _, schema = resource_of(yaml.safe_load(path.read_text()))
    fake, problems = schema.admit({"metadata": {"name": "kept"}, "spec": spec})
    assert problems == [] and fake["spec"] == real


@pytest.mark.parametrize(("kind", "version"), THEIRS)
def test_objects_of_the_reference_are_kept_whole(
    plane: ControlPlane, tmp_path: Path, kind: Tree, version: Tree
) -> None:
    """kubectl refuses a field that the definition lacks."""
    body = whole(kind, version)
    (path := tmp_path / "object.json").write_text(json.dumps(body))
    name = f"{kind['plural']}.{version['name']}.{kind['group']}"
    kubectl(plane, "create", "-f", str(path))
    try:
        if "status" in version["subresources"]:
            kubectl(plane, "replace", "--subresource=status", "-f", str(path))
        kept = json.loads(kubectl(plane, "get", name, "whole", "-o", "json"))
        assert {**kept, "metadata": body["metadata"]} == body
    finally:
        kubectl(plane, "delete", name, "whole")


def _untold(schema: Tree, path: str) -> Iterator[str]:
    for key, each in schema.get("properties", {}).items():
        where = f"{path}.{key}"
        if not each.get("description") and "$ref" not in each:
            yield where
        yield from _untold(each.get("items", each), where)


@pytest.mark.parametrize(("kind", "version"), THEIRS)
def test_kubectl_explains_each_field(plane: ControlPlane, kind: Tree, version: Tree) -> None:
    """kubectl explain prints what the API server publishes."""
    page = kubectl(plane, "get", "--raw", f"/openapi/v3/apis/{kind['group']}/{version['name']}")
    schemas = json.loads(page)["components"]["schemas"]
    (schema,) = (
        each
        for each in schemas.values()
        if kind["kind"]
        in {kinds["kind"] for kinds in each.get("x-kubernetes-group-version-kind", ())}
    )
    assert schema["description"] and "metadata" in schema["properties"]
    assert list(_untold(schema, kind["kind"])) == []


def test_kubectl_explains(plane: ControlPlane) -> None:
    said = kubectl(plane, "explain", "reservation.spec.ttl")
    assert "Time from creation until the reservation expires" in said
