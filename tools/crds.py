"""Writes ``deploy/crds/``: the definitions of the protocol's custom resources.

Fields come from the types by which koordlet decodes and encodes them, with the text that stands
under a field in the source. What the API server checks and fills in comes from
``docs/reference/definitions.yaml``, so that each object of the reference stays valid and gets the
same defaults; the types check more, and say what they refuse. With ``--check``, fails where a file
differs.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as mi
import yaml

from koordlet.protocol.decode import bare_type, format_of, plain, type_info
from koordlet.protocol.formats import FORMATS
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES, CustomResource

ROOT = Path(__file__).parent.parent
OUT = ROOT / "deploy" / "crds"
FACTS = ROOT / "docs" / "reference" / "definitions.yaml"

Tree = dict[str, Any]

_INT_OR_STRING = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_APPROVED = "unapproved, of a community"
_LISTS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)
_LIMITS = (("ge", "minimum"), ("le", "maximum"))
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_KINDS: dict[str, Tree] = {
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "date-time": {"type": "string", "format": "date-time"},
    "int-or-string": _INT_OR_STRING,
    "quantity": {**_INT_OR_STRING, "pattern": _QUANTITY},
    "open object": _ANYTHING,
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_CHECKS = (
    *("default", "enum", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "minProperties", "pattern", "nullable"),
)
_SPEC = "State that is asked for."
_STATUS = "State that was found, by whoever acts on this object."
# The API server describes them, and refuses a text for metadata.
_META: Tree = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object"},
}


def definition(each: CustomResource) -> Tree:
    """Return the CustomResourceDefinition (apiextensions.k8s.io/v1)."""
    names: Tree = {
        "kind": each.kind,
        "listKind": f"{each.kind}List",
        "plural": each.plural,
        "singular": each.kind.lower(),
    }
    if each.short_names:
        names["shortNames"] = list(each.short_names)
    meta: Tree = {"name": f"{each.plural}.{each.group}"}
    if each.group.endswith(".k8s.io"):
        # Groups of Kubernetes' own domain need a sign that somebody approved them.
        meta["annotations"] = {"api-approved.kubernetes.io": _APPROVED}
    facts = next((f for f in kinds() if (f["group"], f["kind"]) == (each.group, each.kind)), {})
    theirs = {version["name"]: version for version in facts.get("versions", ())}
    served = (each.version, *each.newer_versions)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": each.group,
            "names": names,
            "scope": "Namespaced" if each.namespaced else "Cluster",
            "versions": [
                _version(each, name, name == served[-1], theirs.get(name, {})) for name in served
            ],
        },
    }


@cache
def kinds() -> list[Tree]:
    """Return the reference's custom resources."""
    found: list[Tree] = yaml.safe_load(FACTS.read_text())
    return found


def _version(each: CustomResource, name: str, stored: bool, facts: Tree) -> Tree:
    schema: Tree = {"type": "object", "properties": {}}
    if each.body is not None:
        schema = _struct(each.body)
    for part, cls, about in (("spec", each.spec, _SPEC), ("status", each.status, _STATUS)):
        if cls is not None:
            schema["properties"][part] = _struct(cls) | {"description": about}
    schema = _as_in_facts(schema, facts or {"type": "object"})
    schema["properties"] = _META | schema["properties"]
    version: Tree = {
        "name": name,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": {"description": each.about, **schema}},
        "additionalPrinterColumns": [
            {
                "name": column.name,
                "type": column.type,
                "jsonPath": column.json_path,
                **({"priority": 1} if column.wide else {}),
            }
            for column in each.columns
        ],
    }
    if each.status is not None and each.status_apart:
        version["subresources"] = {"status": {}}
    return version


def _as_in_facts(schema: Tree, facts: Tree | str) -> Tree:
    """Return ``schema`` with what the API server checks and fills in taken from ``facts``."""
    given = {"type": facts} if isinstance(facts, str) else facts
    found: Tree = {}
    if "fields" in given:
        fields = {
            name: _as_in_facts(part, given["fields"][name]) if name in given["fields"] else part
            for name, part in schema["properties"].items()
        }
        found = {"type": "object", "properties": fields}
        if given.get("required"):
            found["required"] = given["required"]
    elif "values" in given:
        values = _as_in_facts(schema["additionalProperties"], given["values"])
        found = {"type": "object", "additionalProperties": values}
    elif "items" in given:
        items = _as_in_facts(schema["items"], given["items"])
        found = {"type": "array", "items": items}
    elif given["type"] == "object":
        found = schema
    else:
        found = dict(_KINDS.get(given["type"], {"type": given["type"]}))
    if given.get("atomic"):
        found[f"x-kubernetes-{'list' if 'items' in given else 'map'}-type"] = "atomic"
    found |= {key: value for key, value in given.items() if key in _CHECKS}
    return found | {key: schema[key] for key in ("description",) if key in schema}


def _struct(cls: type[msgspec.Struct]) -> Tree:
    info = bare_type(type_info(cls))
    assert isinstance(info, mi.StructType)
    texts = _texts(cls)
    fields: Tree = {}
    for field in info.fields:
        about = texts.get(field.name) or _description(field.type)
        if not about:
            raise ValueError(f"{cls.__qualname__}.{field.name}: write under it what it means")
        fields[field.encode_name] = _bare(field.type) | {"description": about}
    required = [field.encode_name for field in info.fields if field.required]
    found: Tree = {"type": "object", "properties": fields}
    return found | ({"required": required} if required else {})


@cache
def _texts(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text under each field of the class. Python drops it when it compiles, so that no
    process holds it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in itertools.pairwise(tree.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split()).replace("``", "")
    return found


def _bare(info: mi.Type) -> dict[str, Any]:
    if (openapi := _extra(info, "openapi")) is not None:
        return {"type": "string", "format": openapi}
    if (name := format_of(info)) is not None:
        return _INT_OR_STRING if FORMATS[name].numbers else {"type": "string"}
    info = plain(info)
    if isinstance(info, mi.UnionType):
        members = [each for each in info.types if not isinstance(each, mi.NoneType)]
        if len(members) > 1:
            return _INT_OR_STRING
        return _bare(members[0])
    if isinstance(info, mi.Metadata):
        return _bare(info.type)
    if isinstance(info, mi.LiteralType):
        return {"type": "string", "enum": list(info.values)}
    if isinstance(info, mi.BoolType):
        return {"type": "boolean"}
    if isinstance(info, mi.IntType):
        limits = {theirs: getattr(info, ours) for ours, theirs in _LIMITS}
        given = {key: value for key, value in limits.items() if value is not None}
        return {"type": "integer", "format": "int64", **given}
    if isinstance(info, mi.FloatType):
        return {"type": "number"}
    if isinstance(info, mi.StrType):
        return {"type": "string"}
    if isinstance(info, mi.DictType):
        if isinstance(bare_type(info.value_type), mi.AnyType):
            return dict(_ANYTHING)
        return {"type": "object", "additionalProperties": _bare(info.value_type)}
    if isinstance(info, _LISTS):
        return {"type": "array", "items": _bare(info.item_type)}
    if isinstance(info, mi.StructType):
        return _struct(info.cls)
    raise TypeError(f"no OpenAPI for {info}")


def _extra(info: mi.Type, name: str) -> Any:
    while isinstance(info, mi.Metadata):
        if info.extra and name in info.extra:
            return info.extra[name]
        info = info.type
    if isinstance(info, mi.UnionType):
        found = (_extra(each, name) for each in info.types)
        return next((each for each in found if each is not None), None)
    return None


def _description(info: mi.Type) -> str:
    while isinstance(info, mi.Metadata):
        if info.extra_json_schema and "description" in info.extra_json_schema:
            return str(info.extra_json_schema["description"])
        info = info.type
    return ""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def text(each: CustomResource) -> str:
    head = "# Written by tools/crds.py; `make crds` writes it anew.\n"
    return head + yaml.dump(definition(each), Dumper=_Dumper, sort_keys=False, width=100)


def main() -> int:
    differing = []
    OUT.mkdir(parents=True, exist_ok=True)
    for each in CUSTOM_RESOURCES:
        path = OUT / f"{each.group}_{each.plural}.yaml"
        if "--check" not in sys.argv:
            path.write_text(text(each))
        elif not path.exists() or path.read_text() != text(each):
            differing.append(path)
    for path in differing:
        print(f"{path}: differs from the types; run make crds", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
