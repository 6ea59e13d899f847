"""What the node asks of the API server and of kubelet, for the RBAC rules of the DaemonSet."""

from __future__ import annotations

from koordlet.kube.access import Need

SOURCES = (
    Need(
        "",
        "nodes",
        ("list", "watch"),
        "so that labels, annotations and what the node offers to pods are known",
    ),
    Need(
        "",
        "pods",
        ("list", "watch"),
        "so that labels, annotations and resources of the node's pods are known",
    ),
    Need(
        "slo.koordinator.sh",
        "nodeslos",
        ("list", "watch"),
        "so that the node does what its NodeSLO says",
    ),
    Need(
        "",
        "nodes/configz",
        ("get",),
        "so that kubelet tells its CPU manager policy and what it reserves",
    ),
    Need(
        "",
        "nodes/pods",
        ("get",),
        "so that kubelet tells the node's pods while the API server is away",
    ),
)
"""The last two are asked of kubelet, which asks the API server. Before Kubernetes 1.33 it knows
``nodes/proxy`` alone, which permits far more (docs/security.md)."""

_SCHEDULING, _TOPOLOGY = "scheduling.koordinator.sh", "topology.node.k8s.io"
REPORTING = (
    Need(
        "slo.koordinator.sh",
        "nodemetrics",
        ("list", "watch"),
        "so that koordlet measures as the manager asks",
    ),
    Need(
        "slo.koordinator.sh",
        "nodemetrics/status",
        ("update",),
        "so that usage is reported",
    ),
    Need(
        _SCHEDULING,
        "devices",
        ("list", "watch", "create", "patch"),
        "so that the node's accelerators and network cards are known to the scheduler",
    ),
    Need(
        _TOPOLOGY,
        "noderesourcetopologies",
        ("list", "watch", "create", "patch"),
        "so that the node's CPUs and NUMA nodes are known to the scheduler",
    ),
    Need(
        "",
        "pods/status",
        ("patch",),
        "so that `kubectl describe pod` shows suppression, evictions and refused annotations",
    ),
    Need("", "pods/eviction", ("create",), "so that evictions respect disruption budgets"),
    Need("", "events", ("create", "patch"), "so that users hear of what was done to their pods"),
)

NEEDS = (*SOURCES, *REPORTING)
