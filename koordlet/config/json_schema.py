"""The configuration as a JSON Schema (draft 2020-12), for editors and pipelines.

It says what a file may hold, key by key: type, range, unit, default and meaning, from the types
that the decoder goes by. Rules that join several keys are known to `koordlet config check` alone.
Keys of the NodeSLO may be written in any case in the file; here they stand as the protocol has it.
"""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import msgspec.inspect as mi

from koordlet.config.origins import structure
from koordlet.config.schema import Application, Config
from koordlet.config.show import meaning, needs_restart, toml_text
from koordlet.protocol.decode import describe, format_of, plain
from koordlet.protocol.formats import FORMATS
from koordlet.protocol.slo_defaults import DEFAULTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_TEXT_LIMITS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_LISTS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)


def schema() -> dict[str, Any]:
    found = _table(Config, Config())
    slo = found["properties"]["slo"]
    slo["properties"] |= _table(type(DEFAULTS), DEFAULTS)["properties"]
    found["properties"]["applications"] = {
        "type": "array",
        "description": _first_line(Application),
        "items": _table(Application),
    }
    return {"$schema": DIALECT, "title": "koordlet.toml", **found}


def _table(cls: type[msgspec.Struct], defaults: msgspec.Struct | None = None) -> dict[str, Any]:
    """``defaults`` None: those of the type, if it has any."""
    properties, required = {}, []
    for field in structure(cls).fields:
        default = getattr(defaults, field.name, None)
        if field.required:
            required.append(field.encode_name)
        properties[field.encode_name] = _key(field.type, default)
    found: dict[str, Any] = {
        "type": "object",
        "description": _first_line(cls),
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        found["required"] = required
    return found


def _key(info: mi.Type, default: Any) -> dict[str, Any]:
    inside = plain(info)
    if isinstance(default, msgspec.Struct):
        found = _table(type(default), default)
        about = meaning(info)
        return found | {"description": about} if about else found
    found = _type(inside)
    if default is not None:
        found["default"] = tomllib.loads(f"value = {toml_text(info, default)}")["value"]
    notes = [
        meaning(info) or _about_items(inside),
        f"[{describe(info)}]",
        "(restart)" if needs_restart(info) else "",
    ]
    return found | {"description": " ".join(filter(None, notes))}


def _type(info: mi.Type) -> dict[str, Any]:
    info = plain(info)
    if (name := format_of(info)) is not None:
        return {"type": ["string", "number"] if FORMATS[name].numbers else "string"}
    if isinstance(info, mi.UnionType):
        members = [_type(each) for each in info.types if not isinstance(each, mi.NoneType)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if isinstance(info, mi.LiteralType):
        return {"enum": list(info.values)}
    if isinstance(info, mi.BoolType):
        return {"type": "boolean"}
    if isinstance(info, mi.IntType | mi.FloatType):
        kind = "integer" if isinstance(info, mi.IntType) else "number"
        return {"type": kind} | _limits(info, _LIMITS)
    if isinstance(info, mi.StrType):
        return {"type": "string"} | _limits(info, _TEXT_LIMITS)
    if isinstance(info, mi.DictType):
        return {"type": "object", "additionalProperties": _type(info.value_type)}
    if isinstance(info, _LISTS):
        return {"type": "array", "items": _type(info.item_type)}
    if isinstance(info, mi.StructType):
        return _table(info.cls)
    return {}


def _limits(info: mi.Type, names: dict[str, str]) -> dict[str, Any]:
    return {
        name: limit for ours, name in names.items() if (limit := getattr(info, ours)) is not None
    }


def _about_items(info: mi.Type) -> str:
    """A list of tables says by its tables what it is."""
    for member in info.types if isinstance(info, mi.UnionType) else (info,):
        item = plain(member.item_type) if isinstance(member, _LISTS) else None
        if isinstance(item, mi.StructType):
            return _first_line(item.cls)
    return ""


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").partition("\n")[0]
