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
QUOTA_PROFILE = (
    _NODES,
    Need(
        "quota.koordinator.sh",
        "elasticquotaprofiles",
        ("list", "watch", "patch"),
        "each profile becomes a quota, and gets the id of its tree",
    ),
    Need(
        "scheduling.sigs.k8s.io",
        "elasticquotas",
        ("list", "watch", "create", "patch"),
        "the quota of a profile follows its nodes",
    ),
    Need("", "events", ("create", "patch"), "what is wrong with a profile is told beside it"),
)
RECOMMENDER = (
    Need(
        "analysis.koordinator.sh",
        "recommendations",
        ("list", "watch", "patch"),
        "a recommendation says whose usage to look at, and keeps what was learned",
    ),
    Need(
        "analysis.koordinator.sh",
        "recommendations/status",
        ("patch",),
        "what containers should request is its status",
    ),
    Need(_SLO, "nodemetrics", ("list", "watch"), "usage of pods is what it is learned from"),
    Need("", "pods", ("list", "watch"), "owners and labels say to which workload a pod belongs"),
)
YARN = (
    Need("", "nodes", ("list", "watch", "patch"), "what YARN uses is an annotation of the node"),
    Need("", "pods", ("list", "watch"), "pods of NodeManagers, and what pods take of batch"),
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


def __getattr__(name: str) -> tuple[Need, ...]:
    """``NEEDS``, made when somebody asks: the table of parts imports this module."""
    if name == "NEEDS":
        return needs()
    raise AttributeError(name)
