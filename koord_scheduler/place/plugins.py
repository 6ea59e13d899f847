"""All plugins that judge nodes, one line each, in the order in which they are asked."""

from __future__ import annotations

from koord_scheduler.model.cluster.arguments import Declared


def _declared(
    name: str, help_text: str, make: str, weight: int = 1, *, by_default: bool = True
) -> Declared:
    return Declared(name, help_text, f"koord_scheduler.place.{make}", weight, by_default)


PLUGINS: tuple[Declared, ...] = (
    _declared("SchedulingHint", "nodes that somebody named", "hint:make", 10_000),
    _declared("NodeUnschedulable", "cordoned nodes", "taints:make_unschedulable"),
    _declared("NodeAffinity", "node selectors and affinity", "node_affinity:make", 2),
    _declared("TaintToleration", "taints", "taints:make_taints", 3),
    _declared("NodePorts", "ports of the host", "ports:make"),
    _declared("NodeResourcesFit", "what nodes have left", "fit:make"),
    _declared("NodeResourcesBalancedAllocation", "CPU and memory used alike", "balanced:make"),
    _declared("LoadAwareScheduling", "what nodes really use", "load:make"),
    _declared("NodeStrain", "nodes whose koordlet reports strain", "strain:make"),
    _declared(
        "NodeResourcesFitPlus", "a strategy by resource", "extended:make_plus", by_default=False
    ),
    _declared(
        "ScarceResourceAvoidance",
        "keeps rare resources for those who ask for them",
        "extended:make_scarce",
        by_default=False,
    ),
    _declared("Reservation", "room that was kept for pods", "reservation.plugin:make", 5000),
    _declared("PodTopologySpread", "pods spread over domains", "spread:make", 2),
    _declared("InterPodAffinity", "pods near others or far from them", "pod_affinity:make", 2),
    _declared("NodeNUMAResource", "CPUs of their own and NUMA nodes", "numa.plugin:make"),
    _declared("DeviceShare", "GPUs and other devices, whole and shared", "device.plugin:make"),
)
