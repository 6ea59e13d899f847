"""Laying one configuration layer over another
(docs/reference/protocol.md section 0, overlay merge)."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from koordlet.protocol.slo import Section

S = TypeVar("S", bound=Section)


def overlay(lower: S | None, upper: S | None) -> S | None:
    """``upper`` over ``lower``: what upper has wins, also an explicit 0 or false; what it lacks
    (None or an empty string) keeps the lower value. Dicts are united by key, lists replaced.
    """
    if upper is None or lower is None:
        return lower if upper is None else upper
    merged = {
        name: _field(getattr(lower, name), getattr(upper, name)) for name in upper.__struct_fields__
    }
    return msgspec.structs.replace(lower, **merged)


def _field(lower: Any, upper: Any) -> Any:
    if upper is None or upper == "":
        return lower
    if isinstance(lower, Section) and isinstance(upper, Section):
        return overlay(lower, upper)
    if isinstance(lower, dict) and isinstance(upper, dict):
        return {**lower, **upper}
    return upper
