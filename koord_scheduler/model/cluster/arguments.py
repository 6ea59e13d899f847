"""Arguments of plugins: ``pluginConfig[].args`` of a profile, in the reference's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T", bound="Args")


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A plugin's arguments are fields of a subclass, with the reference's defaults."""


class ArgumentError(Exception):
    """The text says which argument of which plugin is wrong, and what it may be."""


def read_args(plugin: str, shape: type[T], args: Mapping[str, Any]) -> T:
    """Raises ArgumentError. ``apiVersion`` and ``kind``, which the reference's files have, count
    for nothing."""
    given = {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{plugin}: {error}") from None


class Declared(NamedTuple):
    """A plugin of a profile, as it is declared. ``make`` is ``module:function`` of
    ``f(args: Mapping[str, Any]) -> plugin``, imported where a profile enables it. ``weight``: of
    its score where the profile gives none; ``by_default``: it is part of the built-in profile."""

    name: str
    help: str
    make: str
    weight: int = 1
    by_default: bool = True
