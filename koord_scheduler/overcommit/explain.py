"""Each term of the batch and mid formulas of a node, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from koord_scheduler.model.amounts import NOTHING, Amounts
from koord_scheduler.model.facts import Inputs, MetricFacts
from koord_scheduler.overcommit import batch as batch_formula
from koord_scheduler.overcommit import mid as mid_formula
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.noderesource import Plan, plan
from koord_scheduler.overcommit.usage import Share, shares
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY


@dataclass(frozen=True)
class Term:
    """One line of a formula. ``sign``: what it does to the result, ``+``, ``-``, ``=``, ``<=`` (at
    most), ``x`` (times ``factor``), or empty where it only shows what another line is made of.
    ``counts``: for cpu and for memory, whether the policy in force uses it."""

    name: str
    sign: str
    amount: Amounts
    about: str
    counts: tuple[bool, bool] = (True, True)
    factor: float | None = None


@dataclass(frozen=True)
class Contribution:
    """What one pod, or one metric without its pod, puts into the sums. ``why`` says by which rule;
    amounts are 0 where it is passed over."""

    key: str
    requested: Amounts
    used: Amounts
    largest: Amounts
    why: str


@dataclass(frozen=True)
class Explanation:
    """``batch`` and ``mid`` are empty where they are taken back (``plan.reset``). ``pods``: by the
    CPU that they use, the largest first."""

    plan: Plan
    batch: tuple[Term, ...]
    mid: tuple[Term, ...]
    pods: tuple[Contribution, ...]


def explain(inputs: Inputs, configuration: Configuration, now_s: float) -> Explanation | None:
    """None while there is no configuration."""
    found = plan(inputs, configuration, now_s)
    if found is None:
        return None
    return Explanation(
        plan=found,
        batch=tuple(_batch_terms(found)),
        mid=tuple(_mid_terms(found)),
        pods=tuple(
            sorted(_contributions(inputs), key=lambda each: (-each.used.cpu_milli, each.key))
        ),
    )


def _batch_terms(found: Plan) -> Iterator[Term]:
    terms, strategy = found.batch, found.strategy
    if terms is None:
        return
    cpu = "largest" if strategy.cpu_calculate_policy == batch_formula.MAX_USAGE_REQUEST else "used"
    memory = {
        batch_formula.REQUEST: "requested",
        batch_formula.MAX_USAGE_REQUEST: "largest",
    }.get(strategy.memory_calculate_policy or "", "used")
    by_request = memory == "requested"
    yield Term("capacity", "+", terms.capacity, "status.capacity of the node")
    yield Term(
        "margin",
        "-",
        terms.margin,
        f"kept unused: cpuReclaimThresholdPercent {strategy.cpu_reclaim_threshold_percent}, "
        f"memoryReclaimThresholdPercent {strategy.memory_reclaim_threshold_percent}",
    )
    yield Term("system", "", terms.system, "used by the system and host applications of prod, mid")
    yield Term("kubelet", "", terms.kubelet_reserved, "reserved: capacity less allocatable")
    yield Term(
        "annotation", "", terms.annotation_reserved, "reserved by node.koordinator.sh/reservation"
    )
    yield Term(
        "outside of pods",
        "-",
        terms.outside,
        "the largest of system, kubelet and annotation",
        (True, not by_request),
    )
    if by_request:
        yield Term(
            "reserved",
            "-",
            terms.reserved,
            "the largest of kubelet and annotation: memoryCalculatePolicy is request",
            (False, True),
        )
    for name, amount, about in (
        ("used", terms.pods.used, "usage of pods of high priority"),
        ("requested", terms.pods.requested, "requests of pods of high priority"),
        ("largest", terms.pods.largest, "the larger one of request and usage of each such pod"),
    ):
        counts = (name == cpu, name == memory)
        yield Term(f"pods: {name}", "-" if any(counts) else "", amount, about, counts)
    limit = terms.limit
    if limit != (None, None):
        capped = Amounts(limit[0] or 0, limit[1] or 0)
        yield Term(
            "limit",
            "<=",
            capped,
            "batchCPUThresholdPercent, batchMemoryThresholdPercent of capacity",
            (limit[0] is not None, limit[1] is not None),
        )
    yield Term("batch", "=", terms.result, "never below 0")
    ratio = found.normalization_ratio
    if ratio is not None and ratio > 1:
        text = "CPU normalisation ratio of the node"
        yield Term("normalisation", "x", found.origin or NOTHING, text, (True, False), ratio)
    if found.third_party:
        yield Term(
            "third parties",
            "-",
            Amounts(found.third_party.get(BATCH_CPU, 0), found.third_party.get(BATCH_MEMORY, 0)),
            "node.koordinator.sh/thirdPartyAllocations of priority koord-batch",
        )
    yield Term(
        "on the node",
        "=",
        Amounts(found.resources.get(BATCH_CPU) or 0, found.resources.get(BATCH_MEMORY) or 0),
        f"{BATCH_CPU}, {BATCH_MEMORY}",
    )


def _mid_terms(found: Plan) -> Iterator[Term]:
    terms, strategy = found.mid, found.strategy
    if terms is None:
        return
    if terms.fixed is not None:
        yield Term(
            "fixed",
            "+",
            terms.fixed,
            f"midReclaimMode {mid_formula.STATIC}: midStaticCPUReservedPercent, "
            "midStaticMemoryReservedPercent of capacity",
        )
    else:
        text = "what prod pods will not use, as the node predicts"
        yield Term("reclaimable", "", terms.reclaimable, text)
        yield Term("unused", "", terms.unused, "capacity less usage of the node")
        yield Term("reclaimed", "+", terms.reclaimed, "the smaller one of reclaimable and unused")
        yield Term(
            "unallocated",
            "",
            terms.unallocated,
            "capacity less what is reserved, used by the system and requested by prod pods",
        )
        yield Term(
            "from unallocated",
            "+",
            terms.from_unallocated,
            f"midUnallocatedPercent {strategy.mid_unallocated_percent}",
        )
    yield Term(
        "limit",
        "<=",
        terms.limit,
        f"midCPUThresholdPercent {strategy.mid_cpu_threshold_percent}, "
        f"midMemoryThresholdPercent {strategy.mid_memory_threshold_percent} of capacity",
    )
    yield Term("mid", "=", terms.result, "on the node")


def _contributions(inputs: Inputs) -> Iterator[Contribution]:
    metric = inputs.metric or MetricFacts()
    counted = set()
    for share in shares(inputs.pods, metric):
        counted.add(share.key)
        yield _contribution(share)
    for pod in inputs.pods:
        if pod.key not in counted:
            why = "passed over: batch or free" if pod.counts else "passed over: it has ended"
            yield Contribution(pod.key, NOTHING, NOTHING, NOTHING, why)


def _contribution(share: Share) -> Contribution:
    return Contribution(
        share.key,
        Amounts(share.requested_cpu_milli, share.requested_memory_bytes),
        Amounts(share.used_cpu_milli, share.used_memory_bytes),
        Amounts(share.largest_cpu_milli, share.largest_memory_bytes),
        share.why,
    )
