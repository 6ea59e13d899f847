"""CPU evict: evicts best-effort and lower-priority work that starves or crowds the node
(docs/reference/qos.md 4)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.plan import Decision, Eviction, Setting, Victim, VictimKind
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import EvictPolicy, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Why
from koordlet.protocol.resources import BATCH_CPU, CPU, MID_CPU
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict import round as evict_round
from koordlet.qos.evict.account import CountedBy, Task
from koordlet.qos.evict.config import Feature, allocatable, satisfaction, usage
from koordlet.qos.evict.release import allocatable_release, cpu_release, satisfaction_release
from koordlet.qos.evict.round import Everybody, EvictOptions, Found, refused, task
from koordlet.qos.evict.victims import Candidate, requested

NAME = "cpu-evict"
OPTIONS = EvictOptions()
THAW_S = 60.0
"""A frozen application is thawed once nothing has needed releasing for this long."""
_TIERS = (BATCH_CPU, MID_CPU)


class Frozen(msgspec.Struct, frozen=True):
    """``trouble_s``: when something last had to be released."""

    why: Why
    trouble_s: float


class CpuEvictState(msgspec.Struct, frozen=True):
    """``frozen``: by name of the application; None: what an earlier run froze is not looked at."""

    round: evict_round.EvictionState = evict_round.EvictionState()
    frozen: dict[str, Frozen] | None = None


def decide(snapshot: Snapshot, memory: CpuEvictState, options: EvictOptions = OPTIONS) -> Decision:
    """Applications that are to be frozen become settings: so the kernel's own state is journaled
    and put back like any other value."""
    frozen = _still_frozen(snapshot, memory.frozen)
    held = {Victim(VictimKind.APPLICATION, name) for name in frozen}
    busy = False

    def build(
        snapshot: Snapshot, slo: ResourceThresholdStrategy, everybody: Everybody
    ) -> Iterator[Found]:
        nonlocal busy

        def awake() -> tuple[Candidate, ...]:
            return tuple(each for each in everybody() if each.victim not in held)

        for feature, each in _tasks(snapshot, slo, awake):
            busy |= isinstance(each, Task)
            yield feature, each

    decision, chosen = evict_round.decide(NAME, options, build, snapshot, memory.round)
    if busy:
        frozen = {name: Frozen(each.why, snapshot.now) for name, each in frozen.items()}
    policies = snapshot.evicting.policies
    stopped: list[Eviction] = []
    for choice, eviction in zip(chosen.choices, decision.plan.evictions, strict=True):
        name = choice.candidate.victim.name
        is_application = choice.candidate.victim.kind is VictimKind.APPLICATION
        if is_application and policies.get(name) is EvictPolicy.FREEZE:
            frozen[name] = Frozen(eviction.why, snapshot.now)
        else:
            stopped.append(eviction)
    settings = tuple(
        Setting(app.cgroup, Resource.FREEZE, 1, frozen[app.name].why)
        for app in snapshot.applications
        if app.present and app.name in frozen
    )
    plan = msgspec.structs.replace(decision.plan, evictions=tuple(stopped), settings=settings)
    return msgspec.structs.replace(
        decision, plan=plan, memory=CpuEvictState(decision.memory, frozen)
    )


def _still_frozen(snapshot: Snapshot, frozen: dict[str, Frozen] | None) -> dict[str, Frozen]:
    slo = snapshot.slo.resource_used_threshold_with_be if snapshot.slo is not None else None
    policies = snapshot.evicting.policies
    if frozen is None:
        frozen = _frozen_before(snapshot)
    return {
        name: each
        for name, each in frozen.items()
        if (slo is None or slo.enable)
        and policies.get(name) is EvictPolicy.FREEZE
        and snapshot.now - each.trouble_s < THAW_S
    }


def _frozen_before(snapshot: Snapshot) -> dict[str, Frozen]:
    """Applications that an earlier run froze: a restart thaws nobody."""
    in_force, why = snapshot.in_force, "cpu-evict.frozen-before"
    return {
        app.name: Frozen(Why(why, "frozen before koordlet restarted"), snapshot.now)
        for app in snapshot.applications
        if app.present
        and in_force.value(app.cgroup, Resource.FREEZE) == 1
        and in_force.is_ours(app.cgroup, Resource.FREEZE)
    }


def _tasks(
    snapshot: Snapshot, slo: ResourceThresholdStrategy, everybody: Everybody
) -> Iterator[Found]:
    """In the order of the reference."""
    wanted = satisfaction(slo)
    if isinstance(wanted, str):
        yield refused(NAME, Feature.BE_CPU, wanted)
    elif wanted is not None:
        release = satisfaction_release(snapshot, wanted, slo)
        yield task(
            NAME,
            Feature.BE_CPU,
            CountedBy.REQUESTED,
            release,
            None,
            everybody,
            lambda each: {BATCH_CPU: each.requests.get(BATCH_CPU, 0)},
        )
    rules = allocatable(Feature.CPU_ALLOCATABLE, slo)
    if isinstance(rules, str):
        yield refused(NAME, Feature.CPU_ALLOCATABLE, rules)
    elif rules is not None:
        yield task(
            NAME,
            Feature.CPU_ALLOCATABLE,
            CountedBy.REQUESTED,
            allocatable_release(snapshot, rules, requested(everybody(), rules, _TIERS)),
            rules,
            everybody,
            lambda each: {name: each.requests.get(name, 0) for name in _TIERS},
        )
    rules = usage(Feature.CPU, slo)
    if isinstance(rules, str):
        yield refused(NAME, Feature.CPU, rules)
    elif rules is not None:
        yield task(
            NAME,
            Feature.CPU,
            CountedBy.USED,
            cpu_release(snapshot, rules, slo),
            rules,
            everybody,
            lambda each: {CPU: each.cpu_milli or 0},
        )


STRATEGY = Strategy(
    name=NAME,
    help="Evict best-effort and lower-priority work that starves or crowds the CPU.",
    function=decide,
    initial=CpuEvictState(),
    options=OPTIONS,
    writes=(Resource.FREEZE,),
    uses=("cgroup.freeze", "cgroup.kill"),
    switches=(
        slo_keys.BEST_EFFORT_LIMITED,
        slo_keys.thresholds(
            "cpuEvictThresholdPercent",
            "cpuEvictBESatisfactionLowerPercent",
            "cpuAllocatableEvictThresholdPercent",
        ),
    ),
    arguments=slo_keys.below(
        slo_keys.THRESHOLDS, "enable", "cpuEvict*", "cpuAllocatableEvict*", "*PriorityThreshold"
    ),
)
