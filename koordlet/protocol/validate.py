"""Rules between fields. The ranges of single fields stand with their types and are enforced by
the decoder; these need the merged value, because the two fields may come from two layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from koordlet.protocol.annotation_types import CacheSchemata, CacheSchemataOfId
from koordlet.protocol.errors import Problem, join
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
(spec/protocol.md 5.3 and 5.4.2)."""


def _range_rises(value: Section, path: str) -> Iterator[Problem]:
    assert isinstance(value, CacheSchemata | CacheSchemataOfId)
    first, last = value.range
    if first >= last:
        yield Problem(join(path, "range"), f"start {first} must be below end {last}")


_OTHER_RULES: dict[type[Section], Callable[[Section, str], Iterator[Problem]]] = {
    CacheSchemata: _range_rises,
    CacheSchemataOfId: _range_rises,
}


def validate(value: object, path: str = "$") -> Iterator[Problem]:
    """Every broken rule in a section, or in the sections inside a list or dict."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from validate(item, join(path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from validate(item, join(path, str(key)))
    elif isinstance(value, Section):
        yield from _pairs(value, path)
        if rule := _OTHER_RULES.get(type(value)):
            yield from rule(value, path)
        for field in msgspec.structs.fields(value):
            yield from validate(getattr(value, field.name), join(path, field.encode_name))


def _pairs(value: Section, path: str) -> Iterator[Problem]:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(value)}
    for lower, upper in LOWER_THEN_UPPER.get(type(value), ()):
        low, high = getattr(value, lower), getattr(value, upper)
        if low is not None and high is not None and low >= high:
            yield Problem(
                join(path, names[lower]), f"is {low}, must be below {names[upper]} ({high})"
            )
