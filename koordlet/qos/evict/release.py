"""How much an eviction feature has to release: the formulas of docs/reference/qos.md 4.3."""

from __future__ import annotations

import math

import msgspec

from koordlet.decision.metrics import (
    NODE_BE,
    NODE_CPU_USAGE,
    NODE_MEMORY_USAGE,
    Aggregate,
    Metric,
)
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.why import Input
from koordlet.protocol.resources import BATCH_CPU, CPU, MEMORY
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict.config import Satisfaction, Watermark


class Release(msgspec.Struct, frozen=True):
    """``amounts``: resource -> milli-cores or bytes, all positive. ``text``: why so much."""

    amounts: dict[str, int] = {}
    text: str = ""
    inputs: tuple[Input, ...] = ()


class BestEffort(msgspec.Struct, frozen=True):
    """The BE tier at one time, in milli-cores. ``limit``: what it may use; ``count``: samples."""

    limit: int
    used: int
    request: int
    count: int = 1


NOTHING = Release()


def last_s(snapshot: Snapshot) -> float:
    """A sample older than this does not count (docs/reference/qos.md 1.6)."""
    return 2 * snapshot.collect_interval_s


def window_s(snapshot: Snapshot, slo: ResourceThresholdStrategy) -> float:
    """The window over which CPU figures are averaged."""
    return max(snapshot.collect_interval_s, slo.cpu_evict_time_window_seconds or 0)


# BECPUEvict


def best_effort(
    snapshot: Snapshot, rules: Satisfaction, window_s: float, how: Aggregate
) -> BestEffort | None:
    """None where a figure of the tier is missing."""
    found = [
        snapshot.metrics.read(NODE_BE, ("cpu", kind), window_s=window_s, aggregate=how)
        for kind in ("real-limit", "usage", "request")
    ]
    known = [reading for reading in found if reading is not None]
    if len(known) < len(found):
        return None
    limit, used, request = (math.trunc(reading.value) for reading in known)
    if rules.by_allocatable:
        # Told to be zero, the tier still counts as starved; not told, nothing follows from it.
        offered = (snapshot.node.allocatable or {}).get(BATCH_CPU, -1)
        limit = offered if offered < 0 else max(offered, 1)
    return BestEffort(limit, used, request, min(reading.count for reading in known))


def starved_milli(rules: Satisfaction, average: BestEffort, last: BestEffort) -> int:
    """How much of the requests must go until the tier is satisfied again; 0: nothing."""
    averaged = _short_milli(rules, average)
    if not averaged or not (_is_busy(rules, average) and _is_busy(rules, last)):
        return 0
    if (last.request, last.limit) == (average.request, average.limit):
        return averaged
    return min(averaged, _short_milli(rules, last))


def _is_busy(rules: Satisfaction, tier: BestEffort) -> bool:
    """Whether it wants more than it gets. Unlike the reference this also holds below one core,
    where an idle tier could be evicted else (docs/reference/qos.md 9, quirk 4)."""
    return tier.limit > 0 and 100 * tier.used >= rules.usage_percent * tier.limit


def _short_milli(rules: Satisfaction, tier: BestEffort) -> int:
    if tier.request <= 0 or 100 * tier.limit > rules.lower * tier.request:
        return 0
    return max((tier.request * rules.upper - 100 * tier.limit) // 100, 0)


def satisfaction_release(
    snapshot: Snapshot, rules: Satisfaction, slo: ResourceThresholdStrategy
) -> Release | str:
    """Text: why it cannot be computed."""
    window = window_s(snapshot, slo)
    average = best_effort(snapshot, rules, window, Aggregate.AVG)
    last = best_effort(snapshot, rules, last_s(snapshot), Aggregate.LAST)
    if average is None or last is None:
        return f"no sample of node_be in the last {window:g} s"
    if average.count * snapshot.collect_interval_s < window // 3:
        return f"samples of node_be cover less than a third of the last {window:g} s"
    if rules.by_allocatable and average.limit < 0:
        return f"the node's allocatable {BATCH_CPU} is not known"
    milli = starved_milli(rules, average, last)
    if not milli:
        return NOTHING
    share = 100 * average.limit / average.request
    return Release(
        {BATCH_CPU: milli},
        f"BE may use {_cores(average.limit)} of the {_cores(average.request)} it requests "
        f"({share:.0f} %, threshold {rules.lower} %) and uses {_cores(average.used)}; requests for "
        f"{_cores(milli)} must be released to reach {rules.upper} %",
        (
            Input("BE limit", average.limit, "milli-cores", window),
            Input("BE request", average.request, "milli-cores", window),
            Input("BE usage", average.used, "milli-cores", window),
            Input("BE limit, last", last.limit, "milli-cores", last_s(snapshot)),
            Input("BE request, last", last.request, "milli-cores", last_s(snapshot)),
            Input("BE usage, last", last.used, "milli-cores", last_s(snapshot)),
        ),
    )


# CPUEvict, BEMemoryEvict, MemoryEvict


def above(rules: Watermark, used: int, capacity: int) -> int:
    """The use above the lower mark, once usage is at the threshold."""
    percent = used * 100 // capacity
    return 0 if percent < rules.threshold else capacity * (percent - rules.lower) // 100


def cpu_release(
    snapshot: Snapshot, rules: Watermark, slo: ResourceThresholdStrategy
) -> Release | str:
    """Average and last usage both count: after an eviction the average still contains the past."""
    window, capacity = window_s(snapshot, slo), snapshot.node.capacity_milli
    average = _node(snapshot, NODE_CPU_USAGE, window, Aggregate.AVG)
    last = _node(snapshot, NODE_CPU_USAGE, last_s(snapshot), Aggregate.LAST)
    if average is None or last is None or capacity <= 0:
        return f"no sample of {NODE_CPU_USAGE.kind} in the last {window:g} s, or no capacity"
    used = math.trunc(1000 * average), math.trunc(1000 * last)
    milli = min(above(rules, each, capacity) for each in used)
    if not milli:
        return NOTHING
    return Release(
        {CPU: milli},
        f"the node uses {_cores(used[0])} of {_cores(capacity)} (threshold {rules.threshold} %); "
        f"{_aim(_cores(milli), rules.lower)}",
        (
            Input(NODE_CPU_USAGE.kind, used[0], "milli-cores", window),
            Input(f"{NODE_CPU_USAGE.kind}, last", used[1], "milli-cores", last_s(snapshot)),
            Input("capacity", capacity, "milli-cores"),
        ),
    )


def memory_release(snapshot: Snapshot, rules: Watermark) -> Release | str:
    window, capacity = last_s(snapshot), snapshot.node.memory_bytes
    last = _node(snapshot, NODE_MEMORY_USAGE, window, Aggregate.LAST)
    if last is None or capacity <= 0:
        return f"no sample of {NODE_MEMORY_USAGE.kind} in the last {window:g} s, or no capacity"
    released = above(rules, math.trunc(last), capacity)
    if not released:
        return NOTHING
    return Release(
        {MEMORY: released},
        f"the node uses {_mib(last)} of {_mib(capacity)} (threshold {rules.threshold} %); "
        f"{_aim(_mib(released), rules.lower)}",
        (
            Input(NODE_MEMORY_USAGE.kind, math.trunc(last), "bytes", window),
            Input("capacity", capacity, "bytes"),
        ),
    )


# CPUAllocatableEvict, MemoryAllocatableEvict


def over_allocatable(rules: Watermark, requested: int, offered: int) -> int:
    """How much of the requests for one resource must be released. Nothing offered: all of them."""
    if offered <= 0:
        return requested
    if requested * 100 <= rules.threshold * offered:
        return 0
    return requested - rules.lower * offered // 100


def allocatable_release(
    snapshot: Snapshot, rules: Watermark, requested: dict[str, int]
) -> Release | str:
    """``requested``: sums by tier resource, of those that may be evicted."""
    offered = snapshot.node.allocatable
    if offered is None:
        return "the node's allocatable resources are not known (node.allocatable)"
    amounts = {
        name: released
        for name, total in sorted(requested.items())
        if (released := over_allocatable(rules, total, offered.get(name, 0))) > 0
    }
    if not amounts:
        return NOTHING
    said = "; ".join(
        f"{requested[name]} of {name} requested, {offered.get(name, 0)} allocatable "
        f"(threshold {rules.threshold} %); "
        + _aim(str(amount), rules.lower if offered.get(name, 0) > 0 else 0)
        for name, amount in amounts.items()
    )
    inputs = tuple(Input(f"requested {name}", requested[name]) for name in amounts)
    return Release(amounts, said, inputs)


def _node(
    snapshot: Snapshot, metric: Metric, window_s: float, aggregate: Aggregate
) -> float | None:
    reading = snapshot.metrics.read(metric, window_s=window_s, aggregate=aggregate)
    return reading.value if reading is not None and math.isfinite(reading.value) else None


def _aim(amount: str, lower: int) -> str:
    """What to reach, in percent. At 0 percent that is no figure to aim for, but everything."""
    if lower <= 0:
        return "all of it must be released"
    return f"{amount} must be released to reach {lower} %"


def _cores(milli: int) -> str:
    return f"{milli / 1000:.2f} cores"


def _mib(amount: float) -> str:
    return f"{amount / (1 << 20):.0f} MiB"
