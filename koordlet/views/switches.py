"""Why the NodeSLO does not ask for a part, and what would switch it on: from what it declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from koordlet.config.part_tables import table_of
from koordlet.decision.part import Part, Switch

AnyPart = Part[Any]


def switched_off(
    part: AnyPart,
    values: Mapping[str, str],
    origins: Mapping[str, str],
    others: Iterable[AnyPart] = (),
) -> tuple[str, str]:
    """(why, remedy) where the NodeSLO does not ask for it, else empty.

    ``values``: dotted key -> TOML text, of all keys that have one. ``others``: every part, of which
    one may be started by the same switch.
    """
    for group in part.switches:
        if any(switch.is_on(values.get(switch.key)) for switch in group):
            continue
        first = group[0]
        known = [switch.key for switch in group if switch.key in values]
        if known:
            why = f"{known[0]} is {values[known[0]]} ({origins.get(known[0], 'default')})"
        else:
            why = f"{first.key} is not set"
        such = ""
        if len(group) > 1:
            rest = ", ".join(_short(switch) for switch in group[1:])
            why += f", nor is any of {rest} on"
            such = "one of them, such as "
        example = first.value or first.example
        remedy = f"set {such}{first.key}{f' = {example}' if example else ''}"
        return why, remedy + _also_arms(part, first, values, others)
    return "", ""


def matches(part: AnyPart, key: str) -> bool:
    """Whether the part goes by this key."""
    own = key.startswith(f"{table_of(part)}.")
    return own or any(fnmatchcase(key, pattern) for pattern in part.arguments)


def _also_arms(
    part: AnyPart, switch: Switch, values: Mapping[str, str], others: Iterable[AnyPart]
) -> str:
    """What else the switch starts, which may surprise."""
    for other in others:
        if not other.arms or other.name == part.name:
            continue
        enable = f"{table_of(other)}.enable"
        if values.get(enable) == "true" and any(switch in group for group in other.switches):
            text = re.sub(r"\{(.+?)\}", lambda key: values.get(key[1], "?"), other.arms)
            return f"; that arms {text}, unless {enable} = false"
    return ""


def _short(switch: Switch) -> str:
    """The key without ``slo`` and its section."""
    return ".".join(switch.key.split(".")[2:])
