"""Whether a pod could run on another node, as upstream's node fit asks (spec/central.md 10.4,
10.8): selector and affinity, taints, cordons, free requests. The scheduler decides in the end."""

from __future__ import annotations

from collections.abc import Mapping

from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import NodeRequirement, NodeTerm, PodClass, Toleration

_REPELS = ("NoSchedule", "NoExecute")


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """As Kubernetes' ``ToleratesTaint``."""
    for each in tolerations:
        if each.effect and each.effect != taint.effect:
            continue
        if each.key and each.key != taint.key:
            continue
        if each.operator == "Exists" or (each.key and each.value == taint.value):
            return True
    return False


def untolerated(cls: PodClass, node: Node, effects: tuple[str, ...] = _REPELS) -> Taint | None:
    for taint in node.taints:
        if taint.effect in effects and not tolerated(taint, cls.tolerations):
            return taint
    return None


def term_matches(term: NodeTerm, node: Node) -> bool:
    return bool(term) and all(_holds(each, node) for each in term)


def affinity_matches(cls: PodClass, node: Node) -> bool:
    """Selector and required terms."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in cls.node_selector.items()):
        return False
    return cls.node_terms is None or any(term_matches(each, node) for each in cls.node_terms)


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
    if not affinity_matches(cls, node):
        return "node does not match selector or affinity"
    taint = untolerated(cls, node)
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


def fits_another(world: World, resident: Resident) -> bool:
    """Any node but its own."""
    return any(
        node.name != resident.pod.node and why_not(world, resident, node) is None
        for node in world.nodes.values()
    )


def _holds(wanted: NodeRequirement, node: Node) -> bool:
    value = node.name if wanted.field else node.labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                have, bound = int(value or ""), int(wanted.values[0])
            except (ValueError, IndexError):
                return False
            return have > bound if wanted.operator == "Gt" else have < bound
    return False
