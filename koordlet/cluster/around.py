"""What the daemon lends to those who speak with the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from koordlet.cluster.shapes import NodeSLO
from koordlet.decision import snapshot
from koordlet.kernel.host import Host
from koordlet.state.listed import ListedSource
from koordlet.state.node import ClusterNode
from koordlet.state.node_state import NodeState
from koordlet.tsdb.store import Store


@dataclass(frozen=True)
class Around:
    """Everything runs on the event loop.

    ``state``: pods and applications of the node, merged. ``node``: the machine as decisions see
    it. ``problems``: name of a part -> why it does not work. ``listed``: where pods go that the API
    server (``api``) or kubelet (``kubelet``) lists. ``took_node``, ``took_slo``, ``took_topology``:
    hear of what the cluster says of the node (``took_topology``: annotations of its
    NodeResourceTopology), and bring it into force at once.
    """

    host: Host
    state: NodeState
    node: Callable[[], snapshot.Node]
    store: Store
    problems: MutableMapping[str, str]
    listed: Mapping[str, ListedSource]
    took_node: Callable[[ClusterNode], None]
    took_slo: Callable[[NodeSLO], None]
    took_topology: Callable[[Mapping[str, str]], None]
