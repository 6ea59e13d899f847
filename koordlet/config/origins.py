"""Where each value in force came from.

An origin is ``default``, ``koordlet.toml:12``, the name of ``slo.file``, or ``disabled``: a
NodeSLO value that is neutral because its block has ``enable = false``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from koordlet.config.lines import Lines
from koordlet.config.schema import Config
from koordlet.protocol.decode import type_info
from koordlet.protocol.errors import join
from koordlet.protocol.slo import NodeSLOSpec, Section
from koordlet.protocol.slo_defaults import is_neutral

DEFAULT = "default"
DISABLED = "disabled"


class Names(NamedTuple):
    """How the files are called, and where the keys of the first one stand."""

    config: str
    slo_file: str
    lines: Lines

    def inline(self, path: str) -> str:
        line = self.lines.find(path)
        return self.config if line is None else f"{self.config}:{line}"


class Leaf(NamedTuple):
    """One key with a value. ``type`` carries its range and meaning."""

    path: str
    value: Any
    type: mi.Type


def structure(cls: type[msgspec.Struct]) -> mi.StructType:
    """The fields of a table with their types, ranges and meanings."""
    info = type_info(cls)
    assert isinstance(info, mi.StructType)
    return info


def leaves(value: msgspec.Struct, path: str = "") -> Iterator[Leaf]:
    """Every key of a table, depth first, tables in lists by index."""
    for field in structure(type(value)).fields:
        child, where = getattr(value, field.name), join(path, field.encode_name)
        if isinstance(child, msgspec.Struct):
            yield from leaves(child, where)
        elif isinstance(child, tuple) and child and isinstance(child[0], msgspec.Struct):
            for index, item in enumerate(child):
                yield from leaves(item, join(where, index))
        elif _is_table_of_tables(field.type):
            for name, table in child.items():
                for key, text in table.items():
                    yield Leaf(join(join(where, name), key), text, mi.AnyType())
        else:
            yield Leaf(where, child, field.type)


def _is_table_of_tables(info: mi.Type) -> bool:
    return isinstance(info, mi.DictType) and isinstance(info.value_type, mi.DictType)


def config_origins(config: Config, names: Names) -> dict[str, str]:
    return {
        leaf.path: DEFAULT if names.lines.exact(leaf.path) is None else names.inline(leaf.path)
        for leaf in leaves(config)
    }


def slo_origins(
    spec: NodeSLOSpec, inline: NodeSLOSpec, from_file: NodeSLOSpec, names: Names
) -> dict[str, str]:
    """Origins of all values that ``spec``, the effective NodeSLO, has."""
    return dict(_section(spec, inline, from_file, names, "slo"))


def _section(
    value: Section, inline: Section | None, from_file: Section | None, names: Names, path: str
) -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(value):
        child, where = getattr(value, field.name), join(path, field.encode_name)
        ours, theirs = getattr(inline, field.name, None), getattr(from_file, field.name, None)
        if isinstance(child, Section):
            origins = _section(child, ours, theirs, names, where)
            if is_neutral(field.name, child):
                yield from _disabled(origins)
            else:
                yield from origins
        elif child is not None:
            origin = DEFAULT if theirs is None else names.slo_file
            for path_in_list in _paths(child, where):
                yield path_in_list, origin if ours is None else names.inline(path_in_list)


def _paths(value: Any, path: str) -> Iterator[str]:
    """The key itself, or the keys of the sections that its list holds."""
    if isinstance(value, tuple) and value and isinstance(value[0], Section):
        for index, item in enumerate(value):
            yield from (leaf.path for leaf in leaves(item, join(path, index)))
    else:
        yield path


def _disabled(origins: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, origin in origins:
        yield path, origin if path.endswith(".enable") else DISABLED
