"""Memory QoS: floors, throttling, out-of-memory order and reclaim by class
(docs/reference/qos.md 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Capability, Pod, Snapshot, WakeKind
from koordlet.decision.strategy import Level, Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol.slo import NodeSLOSpec, ResourceQOSStrategy
from koordlet.qos.memory_qos import high as memory_qos_high
from koordlet.qos.memory_qos import reclaim as memory_qos_reclaim
from koordlet.qos.memory_qos import values
from koordlet.qos.memory_qos.high import Watched
from koordlet.qos.memory_qos.pace import Tracks
from koordlet.qos.memory_qos.parts import Part
from koordlet.qos.memory_qos.reclaim import Candidate, Taken
from koordlet.qos.memory_qos.values import RECLAIM, Standing, floors, stand

NAME = "memory-qos"
LOOK_S = 10.0
"""Most time between two looks at limits in the files, and at what others have set there, without a
change of pods, applications or the NodeSLO."""


class Basis(msgspec.Struct, frozen=True):
    """What ``standing`` was made of, ``at`` that time."""

    at: float
    pods: tuple[Pod, ...]
    applications: tuple[Application, ...]
    slo: NodeSLOSpec | None
    capabilities: Mapping[str, Capability]
    standing: Standing


class MemoryQosState(msgspec.Struct, frozen=True):
    """``watched``: cgroups with a ``memory.high`` of ours. ``tracks``: those reclaimed from."""

    basis: Basis | None = None
    watched: dict[str, Watched] = {}
    tracks: Tracks = {}


def decide(snapshot: Snapshot, memory: MemoryQosState, _: Options = DEFAULTS) -> Decision:
    """The complete plan. Pods that nobody has listed yet could have floors in the sums, so until
    then everything stays as it is."""
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    if strategy is None:
        return _keep(memory, "no-slo", "no NodeSLO has a resourceQOSStrategy")
    if not snapshot.sources_synced:
        return _keep(memory, "not-synced", "not all pods are known yet")
    if not snapshot.node.capabilities:
        return _keep(memory, "not-probed", "the kernel's features are not known yet")
    basis = _basis(snapshot, strategy, memory.basis)
    standing = basis.standing
    notes = list(standing.notes)
    highs: dict[str, Setting] = {}
    watched: dict[str, Watched] = {}
    for part, asked_bytes in standing.throttled:
        wanted_bytes = asked_bytes + memory_qos_high.huge_bytes(snapshot, part.cgroup)
        watch = memory_qos_high.watch(
            snapshot.in_force,
            part.cgroup,
            wanted_bytes,
            snapshot.now,
            memory.watched.get(part.cgroup),
            snapshot.node.rules.page_bytes,
        )
        watched[part.cgroup] = watch.watched
        setting = highs[part.cgroup] = _high(snapshot, part, watch)
        if watch.change:
            text = f"memory.high is now {setting.value} instead of {wanted_bytes}: {watch.change}"
            notes.append(Why("memory-qos.high-moved", f"{part.title}: {text}"))
    if snapshot.wake.kind is WakeKind.TICK:
        candidates = _candidates(snapshot, standing, highs)
        taken = memory_qos_reclaim.decide(snapshot, candidates, memory.tracks)
    else:
        # What was asked for a moment ago is still on its way: nothing can be told from it yet.
        taken = Taken((), memory.tracks, ())
    return Decision(
        Plan(NAME, (*standing.settings, *highs.values())),
        MemoryQosState(basis, watched, taken.tracks),
        (*notes, *taken.notes),
        reclaims=taken.reclaims,
    )


def _basis(snapshot: Snapshot, strategy: ResourceQOSStrategy, before: Basis | None) -> Basis:
    """The previous one, while all that it was made of are the same objects. It is made anew at
    whole intervals, whenever it was made: decisions that are made again later, from a memory
    without it, then look when these did."""
    if (
        before is not None
        and before.pods is snapshot.pods
        and before.applications is snapshot.applications
        and before.slo is snapshot.slo
        and before.capabilities is snapshot.node.capabilities
        and snapshot.now // LOOK_S == before.at // LOOK_S
        and snapshot.wake.kind is not WakeKind.CHANGE
    ):
        return before
    return Basis(
        snapshot.now,
        snapshot.pods,
        snapshot.applications,
        snapshot.slo,
        snapshot.node.capabilities,
        stand(snapshot, strategy),
    )


def _high(snapshot: Snapshot, part: Part, watch: memory_qos_high.Watch) -> Setting:
    ceiling = part.limit_bytes or snapshot.node.memory_bytes
    value = memory_qos_high.within(watch.limit_bytes, ceiling)
    percent, raised = part.config.qos.throttling_percent, watch.watched.raised_bytes
    text = f"{part.title}: {percent} % of the way from request to limit"
    if raised:
        text += f", and {raised} bytes more because it made no progress there"
    facts = (
        Input("throttlingPercent", percent, "%"),
        Input("request", part.request_bytes, "bytes"),
        Input("limit", ceiling, "bytes"),
        Input("raised", raised, "bytes"),
    )
    why = Why("memory-qos.high", text, facts)
    return Setting(part.cgroup, Resource.MEMORY_HIGH, value, why)


def _candidates(
    snapshot: Snapshot, standing: Standing, highs: Mapping[str, Setting]
) -> Iterator[Candidate]:
    """Candidates for reclaim, on a kernel without watermarks."""
    node = snapshot.node
    if node.has(Resource.MEMORY_WMARK_RATIO) or not node.has(RECLAIM):
        return
    for part in standing.parts:
        qos, high = part.config.qos, highs.get(part.cgroup)
        bounds = (part.limit_bytes, int(high.value) if high is not None else 0)
        bound = min((each for each in bounds if each > 0), default=0) if qos.wmark_ratio else 0
        # A container is part of its pod.
        gives_way = 0 if part.level is Level.CONTAINER else max(qos.wmark_min_adj or 0, 0)
        if bound or gives_way:
            yield Candidate(
                part.cgroup,
                part.title,
                part.level,
                part.name,
                bound,
                max(floors(qos, part.request_bytes or 0))
                + memory_qos_high.huge_bytes(snapshot, part.cgroup),
                qos.wmark_ratio or 0,
                qos.wmark_scale_permill or 0,
                gives_way,
            )


def _keep(memory: MemoryQosState, rule: str, text: str) -> Decision:
    why = Why(f"memory-qos.{rule}", f"{text}; memory settings stay as they are")
    return Decision(Plan(NAME, keep_all=True), memory, (why,))


def _lasting(memory: MemoryQosState) -> MemoryQosState:
    return msgspec.structs.replace(memory, basis=None)


STRATEGY = Strategy(
    name=NAME,
    help="Memory floors, limits and reclaim by QoS class.",
    function=decide,
    initial=MemoryQosState(),
    lasting=_lasting,
    options=DEFAULTS,
    wakes_on=frozenset({WakeKind.CHANGE}),
    writes=(
        Resource.MEMORY_MIN,
        Resource.MEMORY_LOW,
        Resource.MEMORY_HIGH,
        *values.WMARKS,
        *values.PRIORITIES,
        *values.OOM_GROUP,
        *values.PAGE_CACHE,
    ),
    needs=(
        Resource.MEMORY_MIN,
        Resource.MEMORY_LOW,
        Resource.MEMORY_HIGH,
        Resource.MEMORY_OOM_GROUP,
        "memory.reclaim",
    ),
    switches=(slo_keys.of_classes("memoryQOS", *slo_keys.QOS, "systemClass"),),
    arguments=slo_keys.below(slo_keys.CLASSES, "*.memoryQOS.*"),
)
