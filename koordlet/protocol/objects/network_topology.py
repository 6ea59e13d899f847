"""ClusterNetworkTopology: by which labels of nodes the network is a tree
(docs/reference/central.md 8.1)."""

from __future__ import annotations

from koordlet.protocol.slo import Section


class TopologyLayer(Section, frozen=True):
    topology_layer: str = ""
    """Name of the layer."""
    parent_topology_layer: str = ""
    """Next wider layer; none for the widest."""
    label_key: tuple[str, ...] = ()
    """Labels of nodes whose value names the domain; the first one counts."""


class ClusterNetworkTopologySpec(Section, frozen=True):
    network_topology_spec: tuple[TopologyLayer, ...] = ()
    """Layers between cluster and node."""


class TopologyInfo(Section, frozen=True):
    topology_layer: str = ""
    """Layer of the domain."""
    topology_name: str = ""
    """Name of the domain."""


class TopologyDetail(Section, frozen=True):
    """One domain of the tree as it is now."""

    topology_info: TopologyInfo = TopologyInfo()
    """Domain that this entry is about."""
    parent_topology_info: TopologyInfo | None = None
    """Domain that it lies in."""
    child_topology_layer: str = ""
    """Next narrower layer."""
    child_topology_names: tuple[str, ...] = ()
    """Domains in it."""
    node_num: int = 0
    """Number of nodes in it."""


class ClusterNetworkTopologyStatus(Section, frozen=True):
    detail_status: tuple[TopologyDetail, ...] = ()
    """Domains of the tree as it is now."""
