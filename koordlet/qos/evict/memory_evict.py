"""Memory evict: evicts best-effort and lower-priority work before the node runs out of memory
(docs/reference/qos.md 4)."""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.decision import slo_keys
from koordlet.decision.plan import Decision
from koordlet.decision.snapshot import Snapshot, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.protocol.resources import BATCH_MEMORY, MEMORY, MID_MEMORY
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict import round as evict_round
from koordlet.qos.evict.account import Amounts, CountedBy
from koordlet.qos.evict.config import Feature, allocatable, usage
from koordlet.qos.evict.release import allocatable_release, memory_release
from koordlet.qos.evict.round import (
    CoolDown,
    Everybody,
    EvictionState,
    EvictOptions,
    Found,
    MaxGrace,
    refused,
    task,
)
from koordlet.qos.evict.victims import Candidate, requested

NAME = "memory-evict"


class MemoryEvictOptions(EvictOptions, frozen=True):
    """A leak does not wait: rounds follow sooner, and a victim gets less time."""

    cool_down_seconds: CoolDown = 4.0
    max_grace_seconds: MaxGrace = 1.0


OPTIONS = MemoryEvictOptions()
_TIERS = (BATCH_MEMORY, MID_MEMORY)


def decide(snapshot: Snapshot, memory: EvictionState, options: EvictOptions = OPTIONS) -> Decision:
    return evict_round.decide(NAME, options, _tasks, snapshot, memory)[0]


def _tasks(
    snapshot: Snapshot, slo: ResourceThresholdStrategy, everybody: Everybody
) -> Iterator[Found]:
    """In the order of the reference."""
    yield from _usage(Feature.BE_MEMORY, snapshot, slo, everybody)
    rules = allocatable(Feature.MEMORY_ALLOCATABLE, slo)
    if isinstance(rules, str):
        yield refused(NAME, Feature.MEMORY_ALLOCATABLE, rules)
    elif rules is not None:
        release = allocatable_release(snapshot, rules, requested(everybody(), rules, _TIERS))
        yield task(
            NAME,
            Feature.MEMORY_ALLOCATABLE,
            CountedBy.REQUESTED,
            release,
            rules,
            everybody,
            lambda each: {name: each.requests.get(name, 0) for name in _TIERS},
        )
    yield from _usage(Feature.MEMORY, snapshot, slo, everybody)


def _usage(
    feature: Feature,
    snapshot: Snapshot,
    slo: ResourceThresholdStrategy,
    everybody: Everybody,
) -> Iterator[Found]:
    rules = usage(feature, slo)
    if isinstance(rules, str):
        yield refused(NAME, feature, rules)
    elif rules is not None:
        release = memory_release(snapshot, rules)
        yield task(NAME, feature, CountedBy.USED, release, rules, everybody, _used)


def _used(each: Candidate) -> Amounts:
    return {MEMORY: each.memory_bytes or 0}


_PERCENT = "memoryEvictThresholdPercent"

STRATEGY = Strategy(
    name=NAME,
    help="Evict best-effort and lower-priority work before memory runs out.",
    function=decide,
    initial=EvictionState(),
    options=OPTIONS,
    # A leak cannot wait for the next tick on top of its grace period.
    wakes_on=frozenset({WakeKind.MEMORY}),
    uses=("cgroup.kill",),
    switches=(
        slo_keys.BEST_EFFORT_LIMITED,
        slo_keys.thresholds(_PERCENT, "memoryAllocatableEvictThresholdPercent"),
    ),
    arguments=slo_keys.below(
        slo_keys.THRESHOLDS,
        "enable",
        "memoryEvict*",
        "memoryAllocatableEvict*",
        "*PriorityThreshold",
    ),
    arms=f"memory eviction too, at {{{slo_keys.THRESHOLDS}.{_PERCENT}}} % of memory in use",
)
