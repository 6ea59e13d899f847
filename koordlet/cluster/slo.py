"""What a NodeSLO says (docs/reference/protocol.md 4.1), a section at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.decision.snapshot import Fault
from koordlet.protocol.decode import decode_partly
from koordlet.protocol.errors import Problem
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import DEFAULTS
from koordlet.protocol.validate import validate

MOST_FAULTS = 8
"""Of one section."""
_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(NodeSLOSpec)}


class Read(NamedTuple):
    spec: NodeSLOSpec
    faults: tuple[Fault, ...] = ()


def read_slo(name: str, tree: Mapping[str, Any], before: NodeSLOSpec) -> Read:
    """A section with a fault keeps what it said ``before``; keys that are not known here, which a
    newer manager may write, are passed over. ``name``: of the object."""
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, field in _FIELDS.items():
        if tree.get(key) is None:
            continue
        spec, problems = decode_partly(NodeSLOSpec, {key: tree[key]}, strict=False, path="spec")
        problems = problems or tuple(validate(overlay(DEFAULTS, spec) or spec, "spec"))
        kept = getattr(before, field)
        if not problems:
            kept = getattr(spec, field)
        if kept is not None:
            found[field] = kept
        faults += (_fault(name, each, kept is not None) for each in problems[:MOST_FAULTS])
    return Read(NodeSLOSpec(**found), tuple(faults))


def _fault(name: str, problem: Problem, is_kept: bool) -> Fault:
    kept = "what it said before stays" if is_kept else "its defaults apply"
    return Fault(f"NodeSLO {name}", problem.path, f"{problem.message}; of this section {kept}")
