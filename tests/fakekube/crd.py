"""Custom resources as their definition (``apiextensions.k8s.io/v1``) lets them be."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import jsonschema

from tests.fakekube.resources import Resource

Tree = dict[str, Any]
_META = ("apiVersion", "kind", "metadata")
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"


@dataclass(frozen=True)
class Schema:
    """A structural schema: what it does not name is dropped, defaults are filled in, the rest is
    checked."""

    tree: Tree
    validator: jsonschema.Draft7Validator

    def admit(self, body: Tree) -> tuple[Tree, list[str]]:
        """The object as it is kept, and what is wrong with it."""
        kept = _pruned(body, self.tree)
        for key in _META:
            if key in body:
                kept[key] = copy.deepcopy(body[key])
        _fill(kept, self.tree)
        found = self.validator.iter_errors({k: v for k, v in kept.items() if k not in _META})
        return kept, [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


def resource_of(definition: Tree) -> tuple[Resource, Schema]:
    """Return what the first served version of a CustomResourceDefinition is. Raises KeyError,
    StopIteration."""
    spec = definition["spec"]
    version = next(each for each in spec["versions"] if each["served"])
    names, parts = spec["names"], version.get("subresources", {})
    resource = Resource(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        spec["scope"] == "Namespaced",
        status="status" in parts,
        scale="scale" in parts,
        unconditional=False,
    )
    return resource, schema_of(version)


def schema_of(version: Tree) -> Schema:
    """Return the schema of one version of a CustomResourceDefinition."""
    tree = version["schema"]["openAPIV3Schema"]
    return Schema(tree, jsonschema.Draft7Validator(_plain(tree)))


def _pruned(value: Any, schema: Tree) -> Any:
    if isinstance(value, list):
        return [_pruned(each, schema.get("items", {})) for each in value]
    if not isinstance(value, dict) or schema.get(_INT_OR_STRING):
        return value
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    kept = {}
    for key, each in value.items():
        if key in known:
            kept[key] = _pruned(each, known[key])
        elif isinstance(others, dict):
            kept[key] = _pruned(each, others)
        elif others or schema.get(_PRESERVE):
            kept[key] = each
    return kept


def _fill(value: Any, schema: Tree) -> None:
    if isinstance(value, list):
        for each in value:
            _fill(each, schema.get("items", {}))
    elif isinstance(value, dict):
        for key, each in schema.get("properties", {}).items():
            if key not in value and "default" in each:
                value[key] = copy.deepcopy(each["default"])
            if value.get(key, 0) is None and not each.get("nullable"):
                del value[key]
            elif key in value:
                _fill(value[key], each)
        if isinstance(others := schema.get("additionalProperties"), dict):
            for key in value.keys() - schema.get("properties", {}).keys():
                _fill(value[key], others)


def _plain(schema: Tree) -> Tree:
    """The schema in the words of JSON Schema: Kubernetes has some of its own."""
    out: Tree = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: _plain(each) for name, each in value.items() if name not in _META}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            out[key] = _plain(value)
        elif key in ("anyOf", "oneOf", "allOf"):
            out[key] = [_plain(each) for each in value]
        elif not key.startswith("x-kubernetes") and key not in ("nullable", "default"):
            out[key] = value
    if schema.get(_INT_OR_STRING):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if schema.get("nullable") and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    out.pop("format", None)
    return out
