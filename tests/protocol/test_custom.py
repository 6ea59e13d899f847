"""The definitions in ``deploy/crds/`` are those of the types, and take what koordlet writes."""

from __future__ import annotations

import marshal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from koordlet.protocol.objects import numa_topology
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES
from koordlet.protocol.objects.device import DeviceInfo, DeviceSpec, DeviceTopology
from koordlet.protocol.objects.node_metric import (
    AggregatedUsage,
    NodeMetricStatus,
    NodeUsage,
    NumaUsage,
    PodUsage,
    ResourceMap,
)
from koordlet.protocol.slo_defaults import DEFAULTS
from tests.fakekube.crd import resource_of, schema_of
from tests.protocol.facts import KINDS, Tree, described, whole

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "crds"


def _admit(kind: str, **body: Any) -> tuple[dict[str, Any], list[str]]:
    resource = next(each for each in CUSTOM_RESOURCES if each.kind == kind)
    path = DIRECTORY / f"{resource.group}_{resource.plural}.yaml"
    _, schema = resource_of(yaml.safe_load(path.read_text()))
    return schema.admit({"metadata": {"name": "n"}, **body})


def test_the_files_are_those_of_the_types() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "crds.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(list(DIRECTORY.glob("*.yaml"))) == len(CUSTOM_RESOURCES)


DEFINITIONS: list[Tree] = [yaml.safe_load(path.read_text()) for path in DIRECTORY.glob("*.yaml")]
OURS = {
    (each["spec"]["group"], each["spec"]["names"]["kind"]): each["spec"] for each in DEFINITIONS
}
THEIRS = [
    pytest.param(kind, version, id=f"{kind['kind']}-{version['name']}")
    for kind in KINDS
    for version in kind["versions"]
]


def _ours(kind: Tree, version: Tree) -> Tree:
    versions = OURS[kind["group"], kind["kind"]]["versions"]
    found: Tree = next(each for each in versions if each["name"] == version["name"])
    return found


def _lacking(fact: Tree | str, schema: Tree, path: str) -> Iterator[str]:
    """Yield what the reference has of a field and ours has not, or has otherwise."""
    given = described(fact)
    for name, each in given.get("fields", {}).items():
        if name in schema.get("properties", {}):
            yield from _lacking(each, schema["properties"][name], f"{path}.{name}")
        else:
            yield f"{path}.{name}: lacks"
    for theirs, ours in (("values", "additionalProperties"), ("items", "items")):
        if theirs in given:
            yield from _lacking(given[theirs], schema.get(ours, {}), f"{path}.{ours}")
    checks = set(given) - {"type", "fields", "values", "items", "atomic"}
    for key in checks:
        if (
            sorted(schema.get(key, ())) != given[key]
            if key == "required"
            else (schema.get(key) != given[key])
        ):
            yield f"{path}: {key} is {given[key]} there"
    if kind := given.get("type"):
        found = schema.get("format", schema.get("type", "any"))
        if schema.get("x-kubernetes-int-or-string"):
            found = "quantity" if "pattern" in schema else "int-or-string"
        elif schema.get("x-kubernetes-preserve-unknown-fields") and "type" in schema:
            found = "open object"
        # Ours may keep more than theirs.
        if found != kind and (found, kind) != ("open object", "object"):
            yield f"{path}: {kind} there, {found} here"
    for key in {"required", "minimum", "maximum", "enum", "minItems", "minLength"} & set(schema):
        if key not in given:
            yield f"{path}: {key} refuses what is right there"


@pytest.mark.parametrize(("kind", "version"), THEIRS)
def test_nothing_of_the_reference_is_missing(kind: Tree, version: Tree) -> None:
    spec, ours = OURS[kind["group"], kind["kind"]], _ours(kind, version)
    assert spec["names"]["plural"] == kind["plural"] and spec["scope"] == kind["scope"]
    assert set(kind.get("short", ())) <= set(spec["names"].get("shortNames", ()))
    assert [ours[key] for key in ("served", "storage")] == [version["served"], version["storage"]]
    assert sorted(ours.get("subresources", ())) == version["subresources"]
    columns = [
        (each["name"], each["type"], each["jsonPath"], each.get("priority", 0))
        for each in ours["additionalPrinterColumns"]
    ]
    for column in version["columns"]:
        wanted = (column["name"], column["type"], column["path"], column.get("priority", 0))
        assert wanted in columns
    fields = {key: version[key] for key in ("fields", "required") if key in version}
    assert list(_lacking(fields, ours["schema"]["openAPIV3Schema"], kind["kind"])) == []


@pytest.mark.parametrize(("kind", "version"), THEIRS)
def test_objects_of_the_reference_are_kept_whole(kind: Tree, version: Tree) -> None:
    body = whole(kind, version)
    assert schema_of(_ours(kind, version)).admit(body) == (body, [])


def test_defaults_are_those_of_the_reference() -> None:
    spec = {"template": {}, "owners": [{"object": {"name": "p"}}], "preAllocationPolicy": {}}
    kept, problems = _admit("Reservation", spec=spec, status={})
    assert problems == []
    assert kept["spec"] == spec | {
        "ttl": "24h",
        "allocateOnce": True,
        "preAllocationPolicy": {"mode": "Default", "enableMultiple": False},
    }
    assert kept["status"] == {"phase": "Pending"}


META = ("apiVersion", "kind", "metadata")
"""Fields that the API server describes itself."""


def _untold(schema: Tree, path: str) -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        if each in ({"type": "string"}, {"type": "object"}) and name in META:
            continue
        about = each.get("description", "")
        if len(about) < 8 or not about.endswith(".") or "`" in about:
            yield f"{path}.{name}: {about!r}"
        yield from _untold(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _untold(schema[key], path)


def test_each_field_says_what_it_means() -> None:
    for each in DEFINITIONS:
        for version in each["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            assert schema["description"]
            assert list(_untold(schema, each["metadata"]["name"])) == []


def test_no_process_holds_the_texts() -> None:
    """They stand under the fields, where Python drops them as it compiles."""
    source = Path(numa_topology.__file__).read_bytes()
    assert b"Distances to other zones." in source
    assert b"Distances" not in marshal.dumps(compile(source, "", "exec"))


RM = ResourceMap({"cpu": "1500m", "memory": "3Gi"}, (DeviceInfo("gpu", True, "GPU-1", 0),))
STATUS = NodeMetricStatus(
    update_time="2026-11-25T10:00:00Z",
    node_metric=NodeUsage(
        RM,
        (AggregatedUsage({"avg": RM, "p99": RM}, "5m0s"), AggregatedUsage({}, "30m0s")),
        RM,
        (),
        (NumaUsage(numa_node_id=0, node_usage=RM),),
    ),
    pods_metric=(PodUsage("default", "p", "koord-prod", "LS", RM),),
)


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("NodeSLO", "spec", DEFAULTS),
        ("NodeMetric", "status", STATUS),
        (
            "Device",
            "spec",
            DeviceSpec((DeviceInfo("gpu", True, topology=DeviceTopology(-1, 0, "p")),)),
        ),
    ],
)
def test_what_koordlet_writes_is_kept_whole(kind: str, part: str, value: Any) -> None:
    tree = msgspec.json.decode(msgspec.json.encode(value))
    kept, problems = _admit(kind, **{part: tree})
    assert problems == []
    assert kept[part] == tree


def test_what_is_no_number_is_refused() -> None:
    spec = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}
    assert "101" in _admit("NodeSLO", spec=spec)[1][0]
    assert _admit("NodeSLO", spec={"resourceUsedThresholdWithBE": {"enable": "yes"}})[1]


def test_other_fields_are_dropped_but_extensions_stay() -> None:
    spec = {"extensions": {"mine": {"a": 1}}, "unheard": 1}
    kept, problems = _admit("NodeSLO", spec=spec)
    assert problems == [] and kept["spec"] == {"extensions": {"mine": {"a": 1}}}
