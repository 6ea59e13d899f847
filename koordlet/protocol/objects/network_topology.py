"""ClusterNetworkTopology: by which labels of nodes the network is a tree
(docs/reference/central.md 8.1)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from koordlet.protocol.slo import Section


class TopologyLayer(Section, frozen=True):
    topology_layer: str = ""
    parent_topology_layer: Annotated[
        str, Meta(description="The next wider layer; none for the widest.")
    ] = ""
    label_key: Annotated[
        tuple[str, ...],
        Meta(description="Labels of nodes whose value names the domain; the first one counts."),
    ] = ()


class ClusterNetworkTopologySpec(Section, frozen=True):
    network_topology_spec: Annotated[
        tuple[TopologyLayer, ...], Meta(description="All layers between cluster and node.")
    ] = ()


class TopologyInfo(Section, frozen=True):
    topology_layer: str = ""
    topology_name: str = ""


class TopologyDetail(Section, frozen=True):
    """One domain of the tree as it is now."""

    topology_info: TopologyInfo = TopologyInfo()
    parent_topology_info: TopologyInfo | None = None
    child_topology_layer: str = ""
    child_topology_names: tuple[str, ...] = ()
    node_num: int = 0


class ClusterNetworkTopologyStatus(Section, frozen=True):
    detail_status: tuple[TopologyDetail, ...] = ()
