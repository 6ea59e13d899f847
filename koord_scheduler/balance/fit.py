"""Whether a pod could run on another node, as upstream's node fit asks
(docs/reference/central.md 10.4,
10.8): selector and affinity, taints, cordons, free requests. The scheduler decides in the end."""

from __future__ import annotations

from collections.abc import Mapping

from koord_scheduler.balance.selecting import nodes_selected
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.place.node_affinity import selected
from koord_scheduler.place.taints import untolerated
from koordlet.protocol.selector import LabelSelector


def why_not(
    world: World,
    resident: Resident,
    node: Node,
    *,
    taken: Mapping[str, int] | None = None,
) -> str | None:
    """None where the pod fits. ``taken``: what else was promised there meanwhile."""
    cls = resident.pod.cls
    if node.unschedulable:
        return "node is cordoned"
    if not selected(cls, node):
        return "node does not match selector or affinity"
    taint = untolerated(cls.tolerations, node.taints)
    if taint is not None:
        return f"taint {taint.key} is not tolerated"
    used = world.requested.get(node.name, {})
    for name, amount in (("pods", 1), *cls.requests.items()):
        if not amount:
            continue
        free = node.allocatable.get(name, 0) - used.get(name, 0)
        free -= taken.get(name, 0) if taken else 0
        if amount > free:
            return f"insufficient {name}"
    return None


def fits_another(world: World, resident: Resident, selector: LabelSelector | None = None) -> bool:
    """Any node but its own, of those that are selected."""
    return any(
        node.name != resident.pod.node and why_not(world, resident, node) is None
        for node in nodes_selected(selector, world.nodes.values())
    )
