"""Writes ``deploy/crds/``: the definitions of the protocol's custom resources, from the types by
which koordlet decodes and encodes them. With ``--check``, fails where a file differs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as mi
import yaml

from koordlet.protocol.decode import bare_type, format_of, plain, type_info
from koordlet.protocol.formats import FORMATS
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES, CustomResource

OUT = Path(__file__).parent.parent / "deploy" / "crds"
_INT_OR_STRING = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_APPROVED = "unapproved, of a community"
_LISTS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)
_LIMITS = (("ge", "minimum"), ("le", "maximum"))


def definition(each: CustomResource) -> dict[str, Any]:
    """The CustomResourceDefinition (apiextensions.k8s.io/v1)."""
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    for name, part in (("spec", each.spec), ("status", each.status)):
        if part is not None:
            properties[name] = _struct(part)
    required = []
    if each.body is not None:
        body = _struct(each.body)
        properties |= body["properties"]
        required = body.get("required", [])
    schema = {"type": "object", "description": each.about, "properties": properties}
    if required:
        schema["required"] = required
    version: dict[str, Any] = {
        "name": each.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
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
    names: dict[str, Any] = {
        "kind": each.kind,
        "listKind": f"{each.kind}List",
        "plural": each.plural,
        "singular": each.kind.lower(),
    }
    if each.short_names:
        names["shortNames"] = list(each.short_names)
    meta: dict[str, Any] = {"name": f"{each.plural}.{each.group}"}
    if each.group.endswith(".k8s.io"):
        # Groups of Kubernetes' own domain need a sign that somebody approved them.
        meta["annotations"] = {"api-approved.kubernetes.io": _APPROVED}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": each.group,
            "names": names,
            "scope": "Namespaced" if each.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _struct(cls: type[msgspec.Struct]) -> dict[str, Any]:
    info = bare_type(type_info(cls))
    assert isinstance(info, mi.StructType)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.encode_name: _type(field.type) for field in info.fields},
    }
    required = [field.encode_name for field in info.fields if field.required]
    return found | ({"required": required} if required else {})


def _type(info: mi.Type) -> dict[str, Any]:
    about = _description(info)
    found = _bare(info)
    return {**found, "description": about} if about else found


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
        return {"type": "object", "additionalProperties": _type(info.value_type)}
    if isinstance(info, _LISTS):
        return {"type": "array", "items": _type(info.item_type)}
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
