"""What a collector, a strategy or a hook declares of itself, in one place.

From the declaration come the part's table in ``koordlet.toml`` with sample, reference and checks,
its row in ``koordlet strategies``, and what ``koordlet doctor`` says the kernel lacks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from koordlet.decision.family import Family
from koordlet.decision.options import Options
from koordlet.decision.resource import Resource
from koordlet.protocol.errors import Problem

O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True)
class Switch:
    """A key of the NodeSLO that switches a part on.

    ``value``: the TOML text that the key must have; empty: any but false, "none" and "0".
    ``example``: TOML text that switches it on.
    """

    key: str
    value: str = ""
    example: str = "true"

    def is_on(self, value: str | None) -> bool:
        """``value``: TOML text of the key, None where it has none."""
        if self.value:
            return value == self.value
        return value is not None and value not in _OFF


_OFF = frozenset({"false", '"none"', '"0"'})


def _no_problem(_: Any) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Part(Generic[O]):
    """``name``: unique among all parts, with hyphens; the configuration and every message use it.
    ``help``: one sentence for the configuration and the lists.

    ``options``: the values in force; those of the declaration are the defaults. ``check``: the
    rules that the type of a single option cannot state, by the option's key; an element of a list
    that the type refused is ``msgspec.UNSET``.

    ``writes``: every resource that it may set. A plan that sets another one is a defect of the part
    and is not carried out.

    ``needs``: kernel features of which at least one must be there; without any, the part does
    nothing and says so. ``uses``: features with which it does more.

    ``switches``: groups of keys of the NodeSLO; the part works where one of each group is on.
    ``arguments``: patterns of the keys of the NodeSLO that it goes by. ``arms``: what its switches
    start besides, which somebody who sets them for another part may not expect; ``{key}`` stands
    for the value of a key. ``families``: what it publishes on the metrics page.
    """

    name: str
    help: str
    options: O
    check: Callable[[O], Iterable[Problem]] = _no_problem
    writes: tuple[Resource, ...] = ()
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    switches: tuple[tuple[Switch, ...], ...] = ()
    arguments: tuple[str, ...] = ()
    arms: str = ""
    families: tuple[Family, ...] = ()

    @property
    def attribute(self) -> str:
        """Its name as an attribute of a table."""
        return self.name.replace("-", "_")

    def with_options(self, options: O) -> Self:
        return replace(self, options=options)

    def problems(self) -> Iterable[Problem]:
        """What is wrong with its options, by the option's key."""
        return self.check(self.options)


P = TypeVar("P", bound=Part[Any])


def declared(package: str, modules: Iterable[str], attribute: str, kind: type[P]) -> dict[str, P]:
    """The parts that modules of ``package`` declare as ``attribute``, by name, in this order.

    Raises TypeError where one is of another kind, ValueError where two have one name.
    """
    found: dict[str, P] = {}
    for module in modules:
        part = getattr(importlib.import_module(f"{package}.{module}"), attribute)
        if not isinstance(part, kind):
            raise TypeError(f"{package}.{module}.{attribute} is no {kind.__name__}")
        if part.name in found:
            raise ValueError(f"{package}.{module}: there is a part {part.name!r} already")
        found[part.name] = part
    return found
