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

NEEDS = SOURCES
