"""What each part asks of the API server. RBAC in `deploy/` is made from here."""

from __future__ import annotations

from koordlet.kube.access import Need

_SLO = "slo.koordinator.sh"
_WATCH = ("get", "list", "watch")
_NODES = Need("", "nodes", ("list", "watch"), "labels and annotations of nodes choose strategies")
_CONFIG = Need(
    "",
    "configmaps",
    ("list", "watch"),
    "slo-controller-config says what all nodes get",
    namespace="koordinator-system",
)

PROCESS = (
    Need(
        "coordination.k8s.io",
        "leases",
        ("create", "get", "update"),
        "one of several processes leads",
        namespace="koordinator-system",
    ),
    Need(
        "",
        "events",
        ("create", "patch"),
        "what is wrong with a configuration is told where users look",
        namespace="koordinator-system",
    ),
)
"""Of the process itself, whatever it runs."""

NODEMETRIC = (
    _NODES,
    _CONFIG,
    Need(
        _SLO,
        "nodemetrics",
        ("list", "watch", "create", "patch", "delete"),
        "every node has a NodeMetric, which goes with it",
    ),
)
NODESLO = (
    _NODES,
    _CONFIG,
    Need(
        _SLO,
        "nodeslos",
        ("list", "watch", "create", "update", "delete"),
        "every node has a NodeSLO, which goes with it",
    ),
)
NODERESOURCE = (
    _NODES,
    _CONFIG,
    Need(_SLO, "nodemetrics", ("list", "watch"), "usage is what batch resources are made of"),
    Need("", "pods", ("list", "watch"), "requests of pods count as reserved"),
    Need("", "nodes", ("patch",), "ratios and original amounts are annotations of the node"),
    Need("", "nodes/status", ("patch",), "batch, mid and device resources are offered there"),
    Need(
        "scheduling.koordinator.sh",
        "devices",
        ("list", "watch"),
        "healthy devices become resources of the node",
    ),
    Need(
        "topology.node.k8s.io",
        "noderesourcetopologies",
        ("list", "watch", "patch"),
        "NUMA nodes get their part of the batch resources",
    ),
)


def needs() -> tuple[Need, ...]:
    """Of the process with all its parts, each verb once."""
    from koord_scheduler.daemon.parts import PARTS

    merged: dict[tuple[str, str, str, tuple[str, ...]], Need] = {}
    for each in (*PROCESS, *(need for part in PARTS for need in part.needs)):
        key = (each.group, each.resource, each.namespace, each.names)
        old = merged.get(key)
        if old is not None:
            verbs = tuple(dict.fromkeys((*old.verbs, *each.verbs)))
            why = old.why if each.why in old.why else f"{old.why}; {each.why}"
            each = old._replace(verbs=verbs, why=why)
        merged[key] = each
    return tuple(merged.values())


NEEDS = needs()
