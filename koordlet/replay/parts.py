"""Strategies and hooks as they were configured then, from the code that is installed now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from koordlet.config import plugins
from koordlet.decision.part import Part
from koordlet.hooks import HOOKS
from koordlet.inputs.model import Configured
from koordlet.qos import STRATEGIES

Table = Literal["strategies", "hooks"]
OURS: Mapping[Table, Mapping[str, Part[Any]]] = {"strategies": STRATEGIES, "hooks": HOOKS}

Resolve = Callable[[Table, Configured], Part[Any] | str]
"""The part, or why there is none."""


def resolve(table: Table, configured: Configured) -> Part[Any] | str:
    """Of ours, or of another installed package."""
    name, options = configured.name, configured.options
    part = OURS[table].get(name)
    if part is None:
        loaded = plugins.load({name: {**options, "enable": True}})
        found = next((each for each in loaded.of(table) if each.name == name), None)
        if found is None:
            return "; ".join(f"{each.path}: {each.message}" for each in loaded.missing) or (
                f"plugins.{name} is no part of this kind"
            )
        return found
    try:
        return part.with_options(msgspec.convert(options, type(part.options)))
    except msgspec.ValidationError as error:
        return f"the recorded options of {name} are not those of this koordlet: {error}"
