"""NodeResourceTopology, of which koordlet writes one for its node
(docs/reference/protocol.md 4.4)."""

from __future__ import annotations

from koordlet.protocol.objects.node_metric import QuantityText
from koordlet.protocol.slo import Section


class ZoneResource(Section, frozen=True):
    """All four are always written."""

    name: str
    """Name of the resource."""
    capacity: QuantityText
    """Amount that the zone has."""
    allocatable: QuantityText
    """Amount that pods may have."""
    available: QuantityText
    """Amount that is left."""


class Cost(Section, frozen=True):
    name: str
    """Zone at the other end."""
    value: int
    """Distance to it."""


class Attribute(Section, frozen=True):
    name: str
    """Name of the attribute."""
    value: str
    """Value of the attribute."""


class Zone(Section, frozen=True):
    name: str
    """Name of the zone, such as node-0."""
    type: str
    """Kind of zone: Node for a NUMA node."""
    parent: str = ""
    """Zone that this one lies in."""
    costs: tuple[Cost, ...] = ()
    """Distances to other zones."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes of the zone."""
    resources: tuple[ZoneResource, ...] = ()
    """Resources of the zone."""


class NumaTopology(Section, frozen=True):
    """What stands beside ``metadata``."""

    topology_policies: tuple[str, ...] = ()
    """Topology manager policy of the kubelet, with its scope."""
    zones: tuple[Zone, ...] = ()
    """NUMA nodes and what they have."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes of the node."""
