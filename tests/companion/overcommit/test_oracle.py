"""The formulas against the text of
docs/reference/central.md 1.4 and 1.5, read by a second pair of eyes.

This is the pseudo-code of the specification, one name for one name and one resource at a time, with
the differences that `docs/compatibility.md` lists.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hypothesis import given

from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.usage import annotation_reserved
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from tests.companion.overcommit.test_properties import batch, inputs, planned, strategies

LOW = ("koord-batch", "koord-free")
FIELD = {"cpu": "cpu_milli", "memory": "memory_bytes"}


def amount(of: Any, resource: str) -> int:
    return int(getattr(of, FIELD[resource]))


def divided(number: int, count: int) -> Fraction:
    """Divide list: ceil of thousandths."""
    return Fraction(math.ceil(Fraction(number) * 1000 / count), 1000)


def divided_cpu(number: int, count: int) -> Fraction:
    """CPU is in thousandths already."""
    return Fraction(math.ceil(Fraction(number, count)))


def batch_by_text(
    of: Inputs, strategy: dict[str, Any], resource: str, zone: int | None = None
) -> int:
    """Of the node, or of one zone."""
    metric, node = of.metric, of.node
    assert metric is not None
    divide = divided_cpu if resource == "cpu" else divided
    ids = []
    if zone is not None and of.topology is not None:
        ids = [each.numa_id for each in of.topology.zones if amount(each.allocatable, resource)]

    def part(number: int, pinned: tuple[int, ...] = ()) -> Fraction:
        """What falls on the zone; all of it where it is the node that is asked for."""
        if zone is None:
            return Fraction(number)
        own = sorted({each for each in pinned if each in ids}) or ids
        return divide(number, len(own)) if zone in own else Fraction(0)

    hp_request = hp_used = hp_max = Fraction(0)
    known = set()
    for pod in of.pods:
        if not pod.counts:
            continue
        known.add(pod.key)
        if pod.priority_class in LOW:
            continue
        request = amount(pod, resource)
        hp_request += part(request, pod.numa_nodes)
        if pod.key not in metric.pods:
            hp_used += part(request, pod.numa_nodes)
            hp_max += part(request, pod.numa_nodes)
            continue
        usage = amount(metric.pods[pod.key], resource)
        exclusive = pod.qos == "LSE" and resource == "cpu" and request > 0
        hp_used += part(request if exclusive else usage, pod.numa_nodes)
        hp_max += part(max(request, usage), pod.numa_nodes)
    for key, found in metric.pods.items():
        if key not in known and found.priority not in LOW:
            hp_used += part(amount(found, resource))
            hp_max += part(amount(found, resource))
    sys_used = amount(metric.system_usage, resource) + sum(
        amount(each, resource)
        for each in metric.applications
        if each.priority in ("koord-prod", "koord-mid")
    )
    capacity = amount(node.capacity, resource)
    reserved = max(
        capacity - amount(node.allocatable, resource),
        0,
        amount(annotation_reserved(node), resource),
    )
    used = part(max(sys_used, reserved))
    kept = part(reserved)
    if zone is not None and of.topology is not None:
        capacity = amount(of.topology.zones[zone].allocatable, resource)
    percent = strategy[f"{resource}ReclaimThresholdPercent"]
    margin = int(capacity * ((100 - percent) / 100))
    by_usage = max(capacity - margin - used - hp_used, 0)
    by_request = max(capacity - margin - kept - hp_request, 0)
    by_max = max(capacity - margin - used - hp_max, 0)
    policy = strategy[f"{resource}CalculatePolicy"]
    result = by_max if policy == "maxUsageRequest" else by_usage
    if policy == "request" and resource == "memory":
        result = by_request
    name = {"cpu": "batchCPUThresholdPercent", "memory": "batchMemoryThresholdPercent"}[resource]
    if name in strategy:
        result = min(Fraction(result), Fraction(int(capacity * (strategy[name] / 100))))
    return math.ceil(result)


@given(inputs, strategies)
def test_batch(of: Inputs, strategy: dict[str, Any]) -> None:
    cpu, memory = batch(planned(of, strategy))
    assert cpu == batch_by_text(of, strategy, "cpu")
    assert memory == batch_by_text(of, strategy, "memory")


@given(inputs, strategies)
def test_batch_of_zones(of: Inputs, strategy: dict[str, Any]) -> None:
    found = planned(of, strategy)
    for number in range(len(found.zones)):
        zone = found.zones[f"node-{number}"]
        assert zone.cpu_milli == batch_by_text(of, strategy, "cpu", number)
        assert zone.memory_bytes == batch_by_text(of, strategy, "memory", number)


@given(inputs, strategies)
def test_mid(of: Inputs, strategy: dict[str, Any]) -> None:
    found = planned(of, strategy)
    for resource, name in (("cpu", MID_CPU), ("memory", MID_MEMORY)):
        assert found.resources[name] == mid_by_text(of, strategy, resource), resource
    assert {BATCH_CPU, BATCH_MEMORY} < found.resources.keys()


def mid_by_text(of: Inputs, strategy: dict[str, Any], resource: str) -> int:
    metric, node = of.metric, of.node
    assert metric is not None
    capacity = amount(node.capacity, resource)
    is_cpu = resource == "cpu"
    limit = strategy["midCPUThresholdPercent"] if is_cpu else 100
    if strategy["midReclaimMode"] == "static":
        fixed = strategy["midStaticCPUReservedPercent"] if is_cpu else 0
        return min(int(capacity * (fixed / 100)), int(capacity * (limit / 100)))
    unused = 0 if metric.node_usage is None else capacity - amount(metric.node_usage, resource)
    predicted = metric.prod_reclaimable
    reclaim = max(0, min(amount(predicted, resource) if predicted else 0, unused))
    prod = sum(
        amount(each, resource) for each in metric.applications if each.priority == "koord-prod"
    )
    reserved = max(
        amount(metric.system_usage, resource) + prod,
        capacity - amount(node.allocatable, resource),
        amount(annotation_reserved(node), resource),
        0,
    )
    requests = sum(
        amount(pod, resource)
        for pod in of.pods
        if pod.counts and pod.priority_class not in ("koord-mid", *LOW)
    )
    unallocated = max(capacity - reserved - requests, 0)
    result = reclaim + int(unallocated * (strategy["midUnallocatedPercent"] / 100))
    return min(result, int(capacity * (limit / 100)))
