"""A journal once more: each decision in the state in which it was made, or the whole course anew
under whatever policy."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from koord_scheduler.kube.scheduling.journal import READY, Journal, opened
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.kube.scheduling.shapes import PODS
from koord_scheduler.model.cluster.columns import CPU, MEMORY
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import gangs
from koord_scheduler.plan.course import Course, Decision
from koord_scheduler.plan.figures import Moved
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.outcomes import Placement
from koord_scheduler.plan.run import Run
from koord_scheduler.plan.state import DONE, bare

_MOST_SAMPLES = 2000
_STEP_S = 0.01
"""Changes that are no further apart are taken together, then decisions are made."""
_SAMPLE_S = 1.0


class Sample(msgspec.Struct, frozen=True):
    """``t``: Unix time. ``cpu``, ``memory``: percent of what all nodes offer that is requested."""

    t: float
    waiting: int
    cpu: float
    memory: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """``hash``: SHA-256 of all placements in their order. ``differing``: ``old`` is the node of the
    record, ``new`` the one of the replay. ``wait_*_s``: from creation to the decision. ``waiting``:
    pods without a node at the end."""

    began_s: float
    ended_s: float
    entries: int
    decisions: int
    agreeing: int
    hash: str
    differing: tuple[Moved, ...]
    waiting: int
    evicted: int = 0
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    samples: tuple[Sample, ...] = ()


class _Tally:
    def __init__(self) -> None:
        self.total = hashlib.sha256()
        self.decisions = self.agreeing = self.entries = self.evicted = 0
        self.differing: dict[str, Moved] = {}
        self.waits: list[float] = []
        self.samples: list[Sample] = []
        self.every_s = _SAMPLE_S
        self.next_s = 0.0

    def placed(self, decision: Decision, wait_s: float) -> None:
        line = (decision.pod, decision.node, sorted(decision.annotations.items()))
        self.total.update(msgspec.json.encode(line) + b"\n")
        self.decisions += 1
        self.waits.append(max(wait_s, 0.0))

    def look(self, world: World, now_s: float) -> None:
        if now_s < self.next_s:
            return
        self.next_s = now_s + self.every_s
        rows = world.cluster.rows()
        asked = world.cluster.requested[rows][:, (CPU, MEMORY)].sum(axis=0)
        offered = np.maximum(world.cluster.allocatable[rows][:, (CPU, MEMORY)].sum(axis=0), 1)
        cpu, memory = (asked * 100.0 / offered).tolist()
        self.samples.append(Sample(now_s, len(world.waiting), round(cpu, 2), round(memory, 2)))
        if len(self.samples) >= _MOST_SAMPLES:
            self.samples = self.samples[::2]
            self.every_s *= 2

    def report(self, began_s: float, ended_s: float, waiting: int) -> Report:
        p50, p99 = np.percentile(self.waits, (50, 99)).tolist() if self.waits else (0.0, 0.0)
        return Report(
            began_s=began_s,
            ended_s=ended_s,
            entries=self.entries,
            decisions=self.decisions,
            agreeing=self.agreeing,
            hash=self.total.hexdigest(),
            differing=tuple(self.differing[key] for key in sorted(self.differing)),
            waiting=waiting,
            evicted=self.evicted,
            wait_p50_s=round(p50, 3),
            wait_p99_s=round(p99, 3),
            samples=tuple(self.samples),
        )


def again(journal: Journal, world: World, until_s: float | None = None) -> Report:
    """Each decision of the record made again just before its binding showed, in the state of the
    record. Members of a gang are decided for together, when the first one shows. Raises
    JournalError."""
    tally = _Tally()
    ended_s = journal.began_s
    together: dict[str, Decision] = {}
    for entry in journal.entries:
        if until_s is not None and entry.t > until_s:
            break
        tally.entries += 1
        ended_s = entry.t
        found = opened(entry)
        if found is None:
            continue
        loaded, item = found
        if loaded.kind is PODS and not entry.gone and not entry.first:
            pod: Pod = item.pod  # type: ignore[attr-defined]
            before = world.waiting.get(pod.key)
            if pod.node and before is not None and before.uid == pod.uid:
                world.tick(entry.t)
                made = together.pop(pod.key, None) or _decided(world, before, together)
                tally.placed(made, entry.t - pod.created_s)
                if made.node == pod.node:
                    tally.agreeing += 1
                else:
                    tally.differing[pod.key] = Moved(pod.key, pod.node, made.node)
        world.take(loaded, item, gone=entry.gone)
        tally.look(world, entry.t)
    return tally.report(journal.began_s, ended_s, len(world.waiting))


def _decided(world: World, pod: Pod, together: dict[str, Decision]) -> Decision:
    book = world.parts.gangs
    engine = world.engine(pod)
    with world.cluster.trial():
        if book is None or not pod.gang:
            outcome = engine.place(pod)
            if isinstance(outcome, Placement):
                return Decision(pod=pod.key, node=outcome.node, annotations=outcome.annotations)
            return Decision(pod=pod.key, why=outcome.text())
        group = gangs.place_group(engine, book, book.group_of(pod.gang), world.network)
    if isinstance(group, gangs.GroupFailed):
        return Decision(pod=pod.key, why=group.text(pod.key))
    for each in group.placements:
        made = Decision(pod=each.pod.key, node=each.node, annotations=each.annotations)
        together[each.pod.key] = made
    return together.pop(pod.key, None) or Decision(pod=pod.key, why="the gang starts without it")


def course(
    journal: Journal, world: World, until_s: float | None = None, *, preempts: bool = True
) -> tuple[Report, Course]:
    """The record's pods come and go as they did, and the policy of ``world`` decides where they go:
    what the record says about their nodes counts only for those that had one when it began. Raises
    JournalError."""
    tally = _Tally()
    decisions: dict[str, Decision] = {}
    recorded: dict[str, str] = {}
    now_s = journal.began_s
    born: dict[str, float] = {}

    def heard(decision: Decision) -> None:
        decisions.pop(decision.pod, None)
        decisions[decision.pod] = decision
        tally.evicted += len(decision.evicted)
        if decision.node:
            tally.placed(decision, now_s - born.get(decision.pod, now_s))

    run = Run(world, heard, preempts=preempts)
    first = True

    def pod_of(pod: Pod) -> Pod:
        if first or pod.scheduler not in world.parts.engines or pod.phase in DONE:
            return pod
        claim = world.cluster.claims.get(pod.key)
        if claim is not None and claim.pod.uid == pod.uid:
            return msgspec.structs.replace(pod, node=claim.node, phase="Running")
        return bare(pod) if pod.node and not pod.terminating else pod

    world.pod_of = pod_of
    ready = False
    for entry in journal.entries:
        if until_s is not None and entry.t > until_s:
            break
        if ready and entry.t >= now_s + _STEP_S:
            now_s = _until(run, tally, now_s, entry.t)
        tally.entries += 1
        if entry.k == READY:
            ready, now_s = True, entry.t
            world.settle()
            for pod in tuple(world.waiting.values()):
                born[pod.key] = pod.created_s or now_s
                run.changed(pod, now_s)
            continue
        found = opened(entry)
        if found is None:
            continue
        loaded, item = found
        first = entry.first and not ready
        if loaded.kind is not PODS:
            world.take(loaded, item, gone=entry.gone)
            if ready and loaded.event is not None:
                run.happened(loaded.event, now_s)
            continue
        pod = item.pod  # type: ignore[attr-defined]
        had = pod.key in world.cluster.claims
        if pod.node and not first:
            recorded[pod.key] = pod.node
        born.setdefault(pod.key, pod.created_s or entry.t)
        world.take(loaded, item, gone=entry.gone)
        if ready:
            run.changed(pod, now_s)
            if had and pod.key not in world.cluster.claims:
                run.happened(Event.POD_GONE, now_s)
    now_s = _until(run, tally, now_s, now_s + _STEP_S)
    for key, made in decisions.items():
        where = recorded.get(key, "")
        if made.node and made.node == where:
            tally.agreeing += 1
        elif where or made.node:
            tally.differing[key] = Moved(key, where, made.node)
    report = tally.report(journal.began_s, now_s, len(world.waiting))
    return report, Course(decisions=decisions)


def _until(run: Run, tally: _Tally, now_s: float, then_s: float) -> float:
    """Decides now, and again whenever a back-off ends before ``then_s``."""
    now_s = min(now_s + _STEP_S, then_s)
    while True:
        run.step(now_s)
        assert isinstance(run.state, World)
        tally.look(run.state, now_s)
        next_s = run.queue.next_s()
        if next_s is None or next_s >= then_s:
            return then_s
        now_s = max(next_s, now_s + 1e-3)
