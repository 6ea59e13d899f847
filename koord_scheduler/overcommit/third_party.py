"""Batch resources that an engine beside Kubernetes has taken (docs/reference/central.md 1.4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import msgspec

from koord_scheduler.model.facts import NodeFacts
from koordlet.protocol import limits
from koordlet.protocol.annotation_types import ResourceList
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.slo import Section
from koordlet.protocol.verdicts import decoder

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"


class Allocation(Section, frozen=True):
    name: str = ""
    priority: str = ""
    resources: ResourceList = msgspec.field(default_factory=dict)


class Allocations(Section, frozen=True):
    allocations: tuple[Allocation, ...] = ()


class Origin(Section, frozen=True):
    resources: ResourceList = msgspec.field(default_factory=dict)


_allocations = decoder(Allocations, limits.NODE.values)
_origin = decoder(Origin, limits.NODE.values)


def taken(node: NodeFacts) -> Mapping[str, int]:
    """Whole units by resource, of allocations of batch priority. Raises ProtocolError."""
    text = node.annotations.get(ALLOCATIONS)
    if not text:
        return {}
    if len(text) > limits.NODE.characters:
        raise ProtocolError(f"has more than {limits.NODE.characters} characters; it is not read")
    found = _allocations(text)
    total: Counter[str] = Counter()
    for allocation in found.allocations if found is not None else ():
        if allocation.priority == PriorityClass.BATCH:
            total.update({name: max(each.value, 0) for name, each in allocation.resources.items()})
    return total


def origin_text(resources: Mapping[str, int]) -> str:
    """Value of the annotation that says what there was before others took their part."""
    texts = {name: str(amount) for name, amount in sorted(resources.items())}
    return json.dumps({"resources": texts}, separators=(",", ":"))


def present_origin(node: NodeFacts) -> Mapping[str, int] | None:
    """What the node's annotation says; None where it is missing or refused."""
    text = node.annotations.get(ORIGIN)
    if not text or len(text) > limits.NODE.characters:
        return None
    try:
        found = _origin(text)
    except ProtocolError:
        return None
    return {name: each.value for name, each in found.resources.items()} if found else None
