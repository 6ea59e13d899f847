"""The parameters of strategies and hooks: their own options, and the keys of the NodeSLO that they
go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, get_args

import msgspec

from koordlet.decision.part import Part
from koordlet.protocol.decode import nearest
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.slo import NodeSLOSpec, Section
from koordlet.replay.parts import OURS

_SLO = "slo"


def parameter(name: str) -> tuple[str, Part[Any]]:
    """The dotted key, and the part, of ``STRATEGY.PARAM``; PARAM is as much of the key's end as
    tells it from others. Raises ProtocolError."""
    strategy, _, wanted = name.partition(".")
    found = {part: (table, parts[part]) for table, parts in OURS.items() for part in parts}
    if strategy not in found or not wanted:
        text = f"{name!r} is not STRATEGY.PARAM; strategies and hooks are {', '.join(found)}"
        raise ProtocolError(Problem("", text, nearest(strategy, found)))
    table, part = found[strategy]
    keys = _keys(table, part)
    fitting = [key for key in keys if key == wanted or key.endswith(f".{wanted}")]
    if len(fitting) == 1:
        return fitting[0], part
    if fitting:
        raise ProtocolError(f"{wanted!r} may be one of {', '.join(fitting)}: say more of it")
    ends = list(_shortest(keys).values())
    text = f"{strategy} has no parameter {wanted!r}; it goes by {', '.join(ends)}"
    raise ProtocolError(Problem("", text, nearest(wanted, ends)))


def names() -> list[str]:
    """All that ``parameter`` takes, each as short as it may be."""
    return [
        f"{part.name}.{end}"
        for table, parts in OURS.items()
        for part in parts.values()
        for end in _shortest(_keys(table, part)).values()
    ]


def _keys(table: str, part: Part[Any]) -> list[str]:
    options = (field.encode_name for field in msgspec.structs.fields(type(part.options)))
    slo = (key for key in slo_keys() if any(fnmatchcase(key, each) for each in part.arguments))
    return [*(f"{table}.{part.name}.{option}" for option in options), *slo]


def _shortest(keys: list[str]) -> Mapping[str, str]:
    """Key -> the shortest end of it that no other has."""
    found = {}
    for key in keys:
        words = key.split(".")
        ends = (".".join(words[-size:]) for size in range(1, len(words) + 1))
        found[key] = next(
            end for end in ends if sum(k == end or k.endswith(f".{end}") for k in keys) == 1
        )
    return found


@cache
def slo_keys() -> tuple[str, ...]:
    """Every key of the NodeSLO that holds a single value."""
    return tuple(_keys_below(NodeSLOSpec, _SLO))


def _keys_below(section: type[Section], path: str) -> Iterator[str]:
    for field in msgspec.structs.fields(section):
        inner = [each for each in get_args(field.type) if _is_section(each)]
        key = f"{path}.{field.encode_name}"
        if inner:
            yield from _keys_below(inner[0], key)
        else:
            yield key


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


NAMES = names()
