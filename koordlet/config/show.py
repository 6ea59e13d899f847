"""The values in force as people read them, and what a reload changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as mi

from koordlet.config.load import Loaded
from koordlet.config.origins import Leaf, leaves
from koordlet.protocol.decode import accepts, format_of, plain
from koordlet.protocol.formats import FORMATS


class Shown(msgspec.Struct, frozen=True):
    """``value`` is TOML text, ``origin`` where it came from."""

    key: str
    value: str
    origin: str
    meaning: str


class Changes(msgspec.Struct, frozen=True):
    """Dotted keys whose values differ; ``needs_restart`` are those a running daemon keeps."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def show(loaded: Loaded) -> tuple[Shown, ...]:
    """Every value in force: the keys of the file, then those of the NodeSLO."""
    return tuple(
        Shown(
            leaf.path,
            toml_text(leaf.type, leaf.value),
            loaded.origins[leaf.path],
            meaning(leaf.type),
        )
        for leaf in _values(loaded)
    )


def changes(old: Loaded, new: Loaded) -> Changes:
    """What differs between two configurations."""
    before = {leaf.path: leaf for leaf in _values(old)}
    after = {leaf.path: leaf for leaf in _values(new)}
    differing = [
        after.get(path) or before[path]
        for path in {**before, **after}
        if path not in before or path not in after or before[path].value != after[path].value
    ]
    return Changes(
        changed=tuple(leaf.path for leaf in differing),
        needs_restart=tuple(leaf.path for leaf in differing if needs_restart(leaf.type)),
    )


def _values(loaded: Loaded) -> Iterator[Leaf]:
    yield from (leaf for leaf in leaves(loaded.config) if leaf.value is not None)
    yield from (leaf for leaf in leaves(loaded.slo, "slo") if leaf.value is not None)


def meaning(info: mi.Type) -> str:
    """The description that stands with a type; empty where there is none."""
    if not isinstance(info, mi.Metadata):
        return ""
    return str((info.extra_json_schema or {}).get("description", ""))


def needs_restart(info: mi.Type) -> bool:
    return isinstance(info, mi.Metadata) and bool((info.extra or {}).get("restart"))


def toml_text(info: mi.Type, value: Any) -> str:
    """``value`` as it is written in TOML."""
    info = plain(info)
    members = info.types if isinstance(info, mi.UnionType) else (info,)
    written_so = any(format_of(member) is None and accepts(member, value) for member in members)
    names = [name for member in members if (name := format_of(member))]
    return _toml(value if written_so or not names else FORMATS[names[0]].render(value))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, msgspec.Struct):
        return _toml(msgspec.to_builtins(value))
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
