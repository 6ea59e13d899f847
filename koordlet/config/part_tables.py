"""The tables of ``koordlet.toml`` that parts declare: one for each part, below ``[collectors]``,
``[strategies]`` or ``[hooks]``; prediction has one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from koordlet.collectors import COLLECTORS
from koordlet.decision.options import Table, about
from koordlet.decision.part import O, Part
from koordlet.hooks import HOOKS
from koordlet.prediction.part import PREDICTION
from koordlet.qos import STRATEGIES

P = TypeVar("P", bound=Part[Any])

TABLES: Mapping[str, Mapping[str, Part[Any]]] = {
    "collectors": COLLECTORS,
    "strategies": STRATEGIES,
    "hooks": HOOKS,
}
"""Name of a table -> its parts by name, in the order in which they run."""


def table(name: str, base: type[Table], meaning: str) -> type[msgspec.Struct]:
    """The struct of one of ``TABLES``: the keys of ``base``, then a table for each part."""
    return msgspec.defstruct(
        f"{name.capitalize()}Table",
        [
            (
                part.attribute,
                Annotated[type(part.options), about(part.help)],
                msgspec.field(default=part.options, name=part.name),
            )
            for part in TABLES[name].values()
        ],
        bases=(base,),
        frozen=True,
        namespace={"__doc__": meaning},
        module=__name__,
    )


def table_of(part: Part[Any]) -> str:
    """The dotted key of a part's table in ``koordlet.toml``."""
    for name, parts in TABLES.items():
        if type(parts.get(part.name)) is type(part):
            return f"{name}.{part.name}"
    if type(part) is type(PREDICTION):
        return part.name
    return f"plugins.{part.name}"


def enabled(table: msgspec.Struct, parts: Mapping[str, P]) -> tuple[P, ...]:
    """Those parts that are switched on, with their options, in the order in which they run."""
    configured = ((part, options_in(table, part)) for part in parts.values())
    return tuple(part.with_options(options) for part, options in configured if options.enable)


def options_in(table: msgspec.Struct, part: Part[O]) -> O:
    """What a table of a configuration, or all of it, has for the part."""
    found = getattr(table, part.attribute)
    assert isinstance(found, type(part.options))
    return found


def configured(config: msgspec.Struct) -> Iterator[tuple[str, Part[Any]]]:
    """The dotted key of each part's table, and the part with its options."""
    for name, parts in TABLES.items():
        below = getattr(config, name)
        for part in parts.values():
            yield f"{name}.{part.name}", part.with_options(options_in(below, part))
    yield PREDICTION.name, PREDICTION.with_options(options_in(config, PREDICTION))
