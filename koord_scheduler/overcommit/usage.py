"""What pods request and use, summed as the formulas of batch and mid need it
(docs/reference/central.md 1.4,
1.5, docs/reference/protocol.md 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from koord_scheduler.model.amounts import NOTHING, Amounts
from koord_scheduler.model.facts import MetricFacts, NodeFacts, PodFacts
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.resources import MEMORY

AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
T = TypeVar("T")
_LOW = frozenset({PriorityClass.BATCH, PriorityClass.FREE})
_NOT_PROD = frozenset({PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE})
_PROD = frozenset({PriorityClass.PROD})
_PROD_AND_MID = frozenset({PriorityClass.PROD, PriorityClass.MID})


class Share(NamedTuple):
    """What one pod, or one metric whose pod is gone, puts into the sums."""

    key: str
    requested_cpu_milli: int
    requested_memory_bytes: int
    used_cpu_milli: int
    used_memory_bytes: int
    largest_cpu_milli: int
    largest_memory_bytes: int
    numa_nodes: tuple[int, ...]
    why: str


REPORTED = "its usage"
UNREPORTED = "no usage reported yet: its request"
EXCLUSIVE = "LSE: its CPU request and its memory usage"
GONE = "reported, but no longer here: its usage"


class Sums(NamedTuple):
    """Of pods of high priority, which are all but batch and free. ``largest``: the larger one of
    request and usage of each pod."""

    requested: Amounts = NOTHING
    used: Amounts = NOTHING
    largest: Amounts = NOTHING


def shares(pods: Iterable[PodFacts], metric: MetricFacts) -> Iterator[Share]:
    """Of pods of high priority that run or will, and of metrics whose pod does not.

    Unlike in the reference, a pod without metric counts in ``largest`` too
    (docs/reference/central.md 12, 3),
    and an LSE pod that requests no CPU has no CPUs of its own and counts by its usage.
    """
    known = set()
    metrics = metric.pods
    for pod in pods:
        if not pod.counts:
            continue
        key = pod.key
        known.add(key)
        if pod.priority_class in _LOW:
            continue
        cpu, memory = pod.cpu_milli, pod.memory_bytes
        usage = metrics.get(key)
        if usage is None:
            yield Share(key, cpu, memory, cpu, memory, cpu, memory, pod.numa_nodes, UNREPORTED)
            continue
        used_cpu, used_memory, why = usage.cpu_milli, usage.memory_bytes, REPORTED
        largest_cpu = used_cpu if used_cpu > cpu else cpu
        largest_memory = used_memory if used_memory > memory else memory
        if pod.qos is QoSClass.LSE and cpu > 0:
            used_cpu, why = cpu, EXCLUSIVE
        yield Share(
            *(key, cpu, memory, used_cpu, used_memory, largest_cpu, largest_memory),
            *(pod.numa_nodes, why),
        )
    for key, usage in metrics.items():
        if key not in known and usage.priority not in _LOW:
            cpu, memory = usage.cpu_milli, usage.memory_bytes
            yield Share(key, 0, 0, cpu, memory, cpu, memory, (), GONE)


def sums(of: Iterable[Share]) -> Sums:
    requested_cpu = requested_memory = used_cpu = used_memory = largest_cpu = largest_memory = 0
    for share in of:
        requested_cpu += share.requested_cpu_milli
        requested_memory += share.requested_memory_bytes
        used_cpu += share.used_cpu_milli
        used_memory += share.used_memory_bytes
        largest_cpu += share.largest_cpu_milli
        largest_memory += share.largest_memory_bytes
    return Sums(
        Amounts(requested_cpu, requested_memory),
        Amounts(used_cpu, used_memory),
        Amounts(largest_cpu, largest_memory),
    )


def prod_request(pods: Iterable[PodFacts]) -> Amounts:
    """Of pods that run or will and are neither mid nor batch nor free."""
    cpu = memory = 0
    for pod in pods:
        if pod.counts and pod.priority_class not in _NOT_PROD:
            cpu += pod.cpu_milli
            memory += pod.memory_bytes
    return Amounts(cpu, memory)


def system_usage(metric: MetricFacts, *, with_mid: bool) -> Amounts:
    """What runs outside of pods: the system, and host applications of prod (and of mid)."""
    total = metric.system_usage
    classes = _PROD_AND_MID if with_mid else _PROD
    for application in metric.applications:
        if application.priority in classes:
            total = total.plus(Amounts(application.cpu_milli, application.memory_bytes))
    return total


def kubelet_reserved(node: NodeFacts) -> Amounts:
    """Capacity less allocatable. Where the webhook amplified allocatable, it is the raw one that
    counts: an amplified one hides what kubelet reserves."""
    allocatable = node.allocatable
    if node.annotations.get(AMPLIFICATION_RATIO):
        raw = _read(keys.RAW_ALLOCATABLE, node)
        if raw:
            cpu, memory = raw.get("cpu"), raw.get(MEMORY)
            allocatable = Amounts(
                cpu.milli if cpu is not None else allocatable.cpu_milli,
                memory.value if memory is not None else allocatable.memory_bytes,
            )
    return node.capacity.minus(allocatable).not_negative()


def annotation_reserved(node: NodeFacts) -> Amounts:
    """What the node's reservation annotation keeps for work outside of Kubernetes."""
    found = _read(keys.NODE_RESERVATION, node)
    if found is None:
        return NOTHING
    memory = found.resources.get(MEMORY)
    return Amounts(found.cpu_milli, memory.value if memory is not None else 0).not_negative()


def _read(key: keys.Key[T], node: NodeFacts) -> T | None:
    """None where the annotation is missing or refused."""
    try:
        return key.read(node.annotations)
    except ProtocolError:
        return None
