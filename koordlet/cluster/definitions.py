"""Check that the cluster's definition of NodeSLO has every field that koordlet knows.

An API server drops fields that a definition does not have, and says so to nobody. helm upgrades no
definitions, and a cluster of Koordinator has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec.inspect as mi

from koordlet.cluster.shapes import NODE_SLOS
from koordlet.kube.errors import KubeError
from koordlet.protocol.decode import bare_type, type_info
from koordlet.protocol.slo import NodeSLOSpec

if TYPE_CHECKING:
    from koordlet.cluster.member import Member

EVERY_S = 3600.0
AGAIN_S = 30.0
"""Seconds after a server that did not answer."""
SHOWN = 8
_PATH = f"/openapi/v3/apis/{NODE_SLOS.api_version}"
_KIND = "x-kubernetes-group-version-kind"
_KEEPS = "x-kubernetes-preserve-unknown-fields"


class Definitions:
    """``lacks``: None until the server has told its schema."""

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] | None = None

    async def run(self, member: Member) -> None:
        """Run until it is cancelled."""
        while True:
            wait_s = AGAIN_S
            if member.client is not None:
                try:
                    self.lacks = tuple(lacking(await member.client.tree(_PATH)))
                    wait_s = EVERY_S
                except KubeError:
                    pass  # the mirrors say what is wrong with the server
            await asyncio.sleep(wait_s)

    @property
    def error(self) -> str:
        """Names of the fields that are dropped; empty where none is known to be."""
        lacks = self.lacks or ()
        more = f" and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
        return f"has no {', '.join(lacks[:SHOWN])}{more}" if lacks else ""


def lacking(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of koordlet's fields that the schema of the kind does not have, the outermost
    of each; none where it has no such kind, or takes any field. ``document``: OpenAPI 3 of its
    group and version."""
    schemas = _object(_object(document.get("components")).get("schemas"))
    wanted = {"group": NODE_SLOS.group, "version": NODE_SLOS.version, "kind": NODE_SLOS.name}
    for schema in map(_object, schemas.values()):
        kinds = schema.get(_KIND)
        if isinstance(kinds, list) and wanted in kinds:
            spec = _object(_object(schema.get("properties")).get("spec"))
            yield from _lacking(type_info(NodeSLOSpec), spec, "spec")


def _lacking(info: mi.Type, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    info = bare_type(info)
    if isinstance(info, mi.UnionType):
        for each in info.types:
            yield from _lacking(each, schema, path)
    elif isinstance(info, (mi.ListType, mi.VarTupleType)):
        yield from _lacking(info.item_type, _object(schema.get("items")), f"{path}[]")
    elif isinstance(info, mi.StructType) and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        for field in info.fields:
            inner = f"{path}.{field.encode_name}"
            if field.encode_name not in properties:
                if schema.get(_KEEPS) is not True:
                    yield inner
            else:
                yield from _lacking(field.type, _object(properties[field.encode_name]), inner)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
