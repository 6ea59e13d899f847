"""Rules between fields. The ranges of single fields stand with their types and are enforced by
the decoder; these need the merged value, because the two fields may come from two layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
import msgspec.inspect as mi

from koordlet.protocol.annotation_types import (
    CacheSchemata,
    CacheSchemataOfId,
    ContainerExtendedResources,
)
from koordlet.protocol.decode import type_info
from koordlet.protocol.errors import NOTHING, Problem, Refused, join
from koordlet.protocol.quantity import NANO
from koordlet.protocol.resources import CPU
from koordlet.protocol.slo import ResctrlQOS, ResourceThresholdStrategy, Section

LOWER_THEN_UPPER: dict[type[Section], tuple[tuple[str, str], ...]] = {
    ResourceThresholdStrategy: (
        ("memory_evict_lower_percent", "memory_evict_threshold_percent"),
        (
            "memory_allocatable_evict_lower_percent",
            "memory_allocatable_evict_threshold_percent",
        ),
        (
            "cpu_evict_be_satisfaction_lower_percent",
            "cpu_evict_be_satisfaction_upper_percent",
        ),
        ("cpu_evict_lower_percent", "cpu_evict_threshold_percent"),
        ("cpu_allocatable_evict_lower_percent", "cpu_allocatable_evict_threshold_percent"),
    ),
    ResctrlQOS: (("cat_range_start_percent", "cat_range_end_percent"),),
}
"""Pairs of fields of which the first must be strictly below the second, where both are set
(docs/reference/protocol.md 5.3 and 5.4.2)."""


def _range_rises(value: Section, path: str) -> Iterator[Problem]:
    assert isinstance(value, CacheSchemata | CacheSchemataOfId)
    first, last = value.range
    if first >= last:
        yield Problem(join(path, "range"), f"start {first} must be below end {last}")


def _whole_amounts(value: Section, path: str) -> Iterator[Problem]:
    """The API server refuses parts of an extended resource. Rounded up, the limit of ``512m``
    bytes would be one byte."""
    assert isinstance(value, ContainerExtendedResources)
    for which in ("requests", "limits"):
        for name, amount in getattr(value, which).items():
            if name != CPU and amount.nano % NANO:
                yield Problem(join(join(path, which), name), f"{amount} is not a whole number")


_OTHER_RULES: dict[type[Section], Callable[[Section, str], Iterator[Problem]]] = {
    CacheSchemata: _range_rises,
    CacheSchemataOfId: _range_rises,
    ContainerExtendedResources: _whole_amounts,
}


class _Field(NamedTuple):
    """Of a section, with a rule somewhere in it. ``name`` in the code, ``key`` in a document."""

    name: str
    key: str


@lru_cache(maxsize=256)
def _ruled(cls: type) -> tuple[_Field, ...]:
    """The fields to look into. Few sections have any."""
    return tuple(
        _Field(field.name, field.encode_name)
        for field in msgspec.structs.fields(cls)
        if any(map(_has_rules, _sections(type_info(cls), field.name)))
    )


@lru_cache(maxsize=256)
def _has_rules(cls: type) -> bool:
    return cls in LOWER_THEN_UPPER or cls in _OTHER_RULES or bool(_ruled(cls))


def _sections(info: mi.Type, field: str = "") -> Iterator[type]:
    """The sections that values of a type are, or hold directly; of a struct those of a field."""
    if isinstance(info, mi.StructType):
        if field:
            yield from _sections(next(f.type for f in info.fields if f.name == field))
        else:
            yield info.cls
    elif isinstance(info, mi.Metadata):
        yield from _sections(info.type)
    elif isinstance(info, mi.UnionType):
        for member in info.types:
            yield from _sections(member)
    elif isinstance(info, mi.DictType):
        yield from _sections(info.value_type)
    elif isinstance(info, mi.VarTupleType):
        yield from _sections(info.item_type)
    elif isinstance(info, mi.TupleType):
        for member in info.item_types:
            yield from _sections(member)


@lru_cache(maxsize=256)
def _keys(cls: type) -> Mapping[str, str]:
    return {field.name: field.encode_name for field in msgspec.structs.fields(cls)}


def validate(value: object, path: str = "$", refused: Refused = NOTHING) -> Iterator[Problem]:
    """Every broken rule in a section, or in the sections inside a list or dict. Fields that were
    ``refused`` break none."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            if _may_break(item):
                yield from validate(item, join(path, index), refused)
    elif isinstance(value, dict):
        for key, item in value.items():
            if _may_break(item):
                yield from validate(item, join(path, str(key)), refused)
    elif isinstance(value, Section) and _may_break(value):
        yield from _pairs(value, path, refused)
        if rule := _OTHER_RULES.get(type(value)):
            yield from rule(value, path)
        for field in _ruled(type(value)):
            yield from validate(getattr(value, field.name), join(path, field.key), refused)


def _may_break(value: object) -> bool:
    if isinstance(value, Section):
        return _has_rules(type(value))
    return isinstance(value, tuple | dict)


def _pairs(value: Section, path: str, refused: Refused) -> Iterator[Problem]:
    for lower, upper in LOWER_THEN_UPPER.get(type(value), ()):
        low, high = getattr(value, lower), getattr(value, upper)
        if low is None or high is None or low < high:
            continue
        names = _keys(type(value))
        where, other = join(path, names[lower]), join(path, names[upper])
        if where not in refused and other not in refused:
            yield Problem(where, f"is {low}, must be below {names[upper]} ({high})")
