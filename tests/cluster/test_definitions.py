"""Fields that the cluster's definition of NodeSLO does not have, by its OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from koordlet.cluster.definitions import lacking
from koordlet.cluster.shapes import NODE_SLOS
from koordlet.protocol.slo import NodeSLOSpec

KINDS = [{"group": NODE_SLOS.group, "version": NODE_SLOS.version, "kind": NODE_SLOS.name}]
FIELDS = frozenset(f"spec.{name}" for name in NodeSLOSpec.__struct_encode_fields__)
KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
HOSTS = {"type": "array", "items": {"properties": {}}}


def document(spec: Any, kinds: Any = KINDS) -> dict[str, Any]:
    schema = {"x-kubernetes-group-version-kind": kinds, "properties": {"spec": spec}}
    return {"components": {"schemas": {"Other": {}, "NodeSLO": schema}}}


@pytest.mark.parametrize(
    ("spec", "lacks"),
    [
        ({"properties": {}}, FIELDS),
        ({"properties": {name.removeprefix("spec."): {} for name in FIELDS}}, frozenset()),
        ({"type": "object"}, frozenset()),
        ({"properties": {}, **KEEPS}, frozenset()),
        ({"properties": {"hostApplications": HOSTS}, **KEEPS}, {"spec.hostApplications[].name"}),
        ({"properties": []}, frozenset()),
        ([], frozenset()),
    ],
)
def test_fields_that_are_dropped(spec: Any, lacks: set[str]) -> None:
    found = set(lacking(document(spec)))
    assert found >= lacks and bool(found) == bool(lacks)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"components": []},
        {"components": {"schemas": [1]}},
        {"components": {"schemas": {"NodeSLO": 3}}},
        document({"properties": {}}, kinds=7),
        document({"properties": {}}, kinds=[{"kind": [], "group": {}}, 3]),
    ],
)
def test_a_document_without_the_kind_lacks_nothing(odd: dict[str, Any]) -> None:
    assert not list(lacking(odd))
