"""The reference's custom resources (docs/reference/definitions.yaml), and objects of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Tree = dict[str, Any]

KINDS: list[Tree] = yaml.safe_load(
    (Path(__file__).parents[2] / "docs" / "reference" / "definitions.yaml").read_text()
)
_SAMPLES: Tree = {
    "string": "Ready",
    "boolean": True,
    "int-or-string": "30%",
    "quantity": "1500m",
    "date-time": "2026-11-25T10:00:00Z",
    "object": {},
    "open object": {"mine": {"a": [1]}},
    "any": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
}


def described(fact: Tree | str) -> Tree:
    """Return a field's entry in its long form."""
    return {"type": fact} if isinstance(fact, str) else fact


def sample(fact: Tree | str) -> Any:
    """Return a value with every field that the entry has, other than its default where it can."""
    given = described(fact)
    if "fields" in given:
        return {name: sample(each) for name, each in given["fields"].items()}
    if "values" in given:
        return {"cpu": sample(given["values"])}
    if "items" in given:
        return [sample(given["items"])]
    if "enum" in given:
        return next(each for each in given["enum"] if each != given.get("default"))
    if given["type"] in ("int32", "int64", "integer"):
        return min(max(7, given.get("minimum", 7)), given.get("maximum", 7))
    return _SAMPLES[given["type"]]


def whole(kind: Tree, version: Tree) -> Tree:
    """Return an object with every field of the kind."""
    return {
        "apiVersion": f"{kind['group']}/{version['name']}",
        "kind": kind["kind"],
        "metadata": {"name": "whole"},
        **sample(version),
    }
