"""What pods ask for, and what the node offers them, as far as this node can know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlet.decision.resource import MIN_SHARES, Resource, Value
from koordlet.decision.snapshot import Container, Node, Pod
from koordlet.prediction.reclaimable import Amounts, Request
from koordlet.protocol.qos import KubeQoS
from koordlet.protocol.resources import CPU, MEMORY

_SHARES_OF_A_CPU = 1024


def request_of(pod: Pod) -> Request:
    """Return the request as reported, else as kubelet told the runtime of the pod as a whole
    (KEP-2837), else the sum of what it asked for its containers. A runtime hears of memory limits
    alone, which a Guaranteed pod requests too."""
    reported = pod.resources
    cpu, memory = reported.request_cpu_milli, reported.request_memory_bytes
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return Request(cpu or 0, memory or 0)
    inside = [each for each in pod.containers if not each.is_sandbox]
    if cpu is None:
        cpu = _milli(pod.requested)
    if cpu is None:
        cpu = _sum(map(_cpu_milli, inside))
    guaranteed = pod.kube_qos is KubeQoS.GUARANTEED
    if memory is None and guaranteed:
        memory = _positive(pod.requested.get(Resource.MEMORY_LIMIT))
    if memory is None:
        memory = _sum(_memory_bytes(each, guaranteed=guaranteed) for each in inside)
    return Request(cpu, memory)


def allocatable(node: Node) -> Amounts:
    """What the node offers to pods before amplification (docs/reference/metrics.md 4.5)."""
    offered = node.allocatable or {}
    raw = node.raw_allocatable
    cpu = offered.get(CPU, max(node.capacity_milli - node.kubelet.reserved_milli, 0))
    return Amounts(raw.get(CPU, cpu), raw.get(MEMORY, offered.get(MEMORY, node.memory_bytes)))


def _cpu_milli(container: Container) -> int | None:
    known = container.resources.request_cpu_milli
    return _milli(container.requested) if known is None else known


def _milli(requested: Mapping[Resource, Value]) -> int | None:
    shares = requested.get(Resource.CPU_SHARES)
    if not isinstance(shares, int):
        return None
    return 0 if shares <= MIN_SHARES else -(-shares * 1000 // _SHARES_OF_A_CPU)


def _memory_bytes(container: Container, *, guaranteed: bool) -> int | None:
    known = container.resources.request_memory_bytes
    if known is not None or not guaranteed:
        return known
    limit = container.resources.limit_memory_bytes
    asked = container.requested.get(Resource.MEMORY_LIMIT) if limit is None else limit
    return _positive(asked)


def _positive(value: Value | None) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    """None where one is not known, or there are none."""
    known = list(amounts)
    return sum(each or 0 for each in known) if known and None not in known else None
