"""What Node, topology and kubelet together say of the machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlet.cluster.kubelet_config import STATIC, Allocation, KubeletConfig
from koordlet.cluster.pods import amount
from koordlet.cluster.shapes import Node
from koordlet.protocol import keys
from koordlet.protocol.annotations import parse_node
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.resources import CPU
from koordlet.state.node import ClusterNode

_READ = frozenset(key.name for key in keys.KEYS.values() if key.kind is keys.Kind.NODE_ANNOTATION)


def cluster_node(
    node: Node | None,
    topology: Mapping[str, str],
    kubelet: KubeletConfig | None,
    held: Iterable[Allocation] = (),
) -> ClusterNode:
    """``topology``: annotations of the NodeResourceTopology. ``kubelet``: None while unknown."""
    meta, status = (node.metadata, node.status) if node is not None else (None, None)
    annotations = {**(meta.annotations if meta is not None else {}), **topology}
    annotations = {name: text for name, text in annotations.items() if name in _READ}
    offered = _amounts(status.allocatable) if status is not None else {}
    return ClusterNode(
        labels=meta.labels if meta is not None else {},
        annotations=annotations,
        allocatable=offered or None,
        kubelet_reserved_milli=_reserved_milli(
            _amounts(status.capacity).get(CPU) if status is not None else None,
            offered.get(CPU),
            annotations,
            kubelet,
        ),
        kubelet_static_policy=kubelet is not None and kubelet.cpu_manager_policy == STATIC,
        static_cpus=frozenset[int]().union(*(each.cpus for each in held)),
        gives_any_pod_cpus=meta is not None and _bind_policy(meta.labels) not in ("", "None"),
    )


def _bind_policy(labels: Mapping[str, str]) -> str:
    try:
        return keys.CPU_BIND_POLICY.read(labels) or ""
    except AnnotationError:
        return ""  # the scheduler binds nobody by it either


def _reserved_milli(
    capacity: int | None,
    offered: int | None,
    annotations: Mapping[str, str],
    kubelet: KubeletConfig | None,
) -> int:
    """Capacity without what is allocatable
    (docs/reference/qos.md 2.2). Where that was amplified, it is what
    was allocatable before."""
    raw = parse_node(
        {k: v for k, v in annotations.items() if k == keys.RAW_ALLOCATABLE.name}
    ).raw_allocatable
    if raw is not None and CPU in raw:
        offered = raw[CPU].milli
    if capacity is not None and offered is not None:
        return max(capacity - offered, 0)
    return kubelet.reserved_milli if kubelet is not None else 0


def _amounts(texts: Mapping[str, str]) -> dict[str, int]:
    found = {name: amount(text, name) for name, text in texts.items()}
    return {name: value for name, value in found.items() if value is not None}
