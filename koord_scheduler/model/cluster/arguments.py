"""Arguments of plugins: ``pluginConfig[].args`` of a profile, in the reference's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T", bound="Args")
_MOST_LEVELS = 32
"""Deeper than any configuration; what lies below stays as it is."""


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A plugin's arguments are fields of a subclass, with the reference's defaults."""


class ArgumentError(Exception):
    """The text says which argument of which plugin is wrong, and what it may be."""


def read_args(plugin: str, shape: type[T], args: Mapping[str, Any]) -> T:
    """Raises ArgumentError. ``apiVersion`` and ``kind``, which the reference's files have, count
    for nothing; what is
    empty is the default, as in the reference."""
    given = {
        key: value
        for key, value in without_nulls(args).items()
        if key not in ("apiVersion", "kind") and value not in ("", [], {})
    }
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{plugin}: {error}") from None


def without_nulls(tree: Any) -> Any:
    """Return it without the keys whose value is null: such a key, which templates write, is as if
    it were not there. What stands behind several YAML aliases is still one object."""
    return _stripped(tree, {}, _MOST_LEVELS)


def _stripped(tree: Any, done: dict[int, Any], levels: int) -> Any:
    if not levels or not isinstance(tree, Mapping | list):
        return tree
    if id(tree) not in done:
        if isinstance(tree, list):
            made: Any = [_stripped(each, done, levels - 1) for each in tree]
        else:
            made = {
                key: _stripped(value, done, levels - 1)
                for key, value in tree.items()
                if value is not None
            }
        done[id(tree)] = made
    return done[id(tree)]


def check_range(plugin: str, where: str, value: float, least: float, most: float | None) -> None:
    """``most`` None: there is no upper bound. Raises ArgumentError."""
    if not least <= value or (most is not None and value > most):
        bounds = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
        raise ArgumentError(f"{plugin}: {where} is {value:g}; it must be {bounds}")


def check_unique(plugin: str, where: str, names: Sequence[str]) -> None:
    """Raises ArgumentError."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ArgumentError(f"{plugin}: {where}[{i}]: {name[:64]} is there twice")


class Declared(NamedTuple):
    """A plugin of a profile, as it is declared. ``make`` is ``module:function`` of
    ``f(args: Mapping[str, Any]) -> plugin``, imported where a profile enables it. ``weight``: of
    its score where the profile gives none; ``by_default``: it is part of the built-in profile."""

    name: str
    help: str
    make: str
    weight: int = 1
    by_default: bool = True
