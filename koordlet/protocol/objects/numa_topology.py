"""NodeResourceTopology, of which koordlet writes one for its node
(docs/reference/protocol.md 4.4)."""

from __future__ import annotations

from koordlet.protocol.objects.node_metric import QuantityText
from koordlet.protocol.slo import Section


class ZoneResource(Section, frozen=True):
    """All four are always written."""

    name: str
    capacity: QuantityText
    allocatable: QuantityText
    available: QuantityText


class Cost(Section, frozen=True):
    name: str
    value: int


class Attribute(Section, frozen=True):
    name: str
    value: str


class Zone(Section, frozen=True):
    name: str
    type: str
    parent: str = ""
    costs: tuple[Cost, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NumaTopology(Section, frozen=True):
    """What stands beside ``metadata``."""

    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    attributes: tuple[Attribute, ...] = ()
