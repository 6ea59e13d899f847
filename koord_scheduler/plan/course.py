"""All that waits in a cluster, decided for in the order of the queue, as if no time went by.

The same plugins, gangs and preemption as in the scheduler's role; bindings and evictions take
effect at once. The same state gives the same decisions, whatever the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.reservation.preallocation import hand_over, lenders
from koord_scheduler.plan import gangs
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.hints import Event, helps
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.jobs import JobPreemption
from koord_scheduler.plan.preemption.pods import Preemption, may_make_room
from koord_scheduler.plan.queue import Unit
from koord_scheduler.plan.state import State, bare

_MOST_ROUNDS = 64
"""Of tries after something changed. Each places or evicts, so there is an end anyway."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod. ``node`` empty: it found none, and ``why`` says the reasons.
    ``evicted``: keys of the pods that had to go for it. ``untried``: there were more nodes than one
    attempt asks about, so it is tried again."""

    pod: str
    uid: str = ""
    node: str = ""
    annotations: Mapping[str, str] = {}
    why: str = ""
    refused_by: frozenset[str] = frozenset()
    evicted: tuple[str, ...] = ()
    group: str = ""
    untried: bool = False


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """``decisions``: the last one for each pod, in the order in which they were made. ``evicted``:
    keys of pods that lost their node, and did not get one again."""

    decisions: Mapping[str, Decision]
    evicted: tuple[str, ...] = ()

    @property
    def placed(self) -> int:
        return sum(bool(each.node) for each in self.decisions.values())

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.decisions.values())


def fingerprint(decisions: Iterable[Decision]) -> str:
    """SHA-256 of who is where, with the annotations of the bindings. Names alone count, not
    uids, which differ each time objects are made."""
    total = hashlib.sha256()
    for each in sorted(decisions, key=lambda each: each.pod):
        line = (each.pod, each.node, sorted(each.annotations.items()))
        total.update(msgspec.json.encode(line) + b"\n")
    return total.hexdigest()


def units(state: State, now_s: float) -> list[Unit]:
    """Who waits, in the order in which they are tried: pods, and gang groups as one."""
    found: list[Unit] = []
    groups: dict[str, None] = {}
    book = state.parts.gangs
    for pod in state.waiting.values():
        if pod.terminating:
            continue
        if book is not None and pod.gang:
            groups[book.group_of(pod.gang)] = None
        else:
            gate = f"waits for scheduling gates: {', '.join(pod.gates)}" if pod.gates else ""
            found.append(Unit(pod.key, pod.cls.priority, pod.created_s, (pod.key,), gate))
    if book is not None:
        made = (gangs.unit(book, group, now_s) for group in groups)
        found += (unit for unit in made if unit is not None)
    found.sort(key=lambda unit: (-unit.priority, unit.created_s, unit.name))
    return found


def decide(
    state: State, now_s: float, *, preempts: bool = True, only: frozenset[str] | None = None
) -> Course:
    """Until nothing changes any more. What is placed has its node in ``state`` then. ``only``:
    names of the units that are tried."""
    state.tick(now_s)
    decisions: dict[str, Decision] = {}
    evicted: dict[str, None] = {}
    happened: set[Event] = set()
    failed: dict[str, frozenset[str]] = {}
    untried: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        todo = [
            unit
            for unit in units(state, now_s)
            if (only is None or unit.name in only)
            and (
                unit.name not in failed
                or unit.name in untried
                or any(helps(e, failed[unit.name]) for e in happened)
            )
        ]
        happened, untried = set(), set()
        for unit in todo:
            made = try_unit(state, unit, preempts=preempts)
            failed[unit.name] = frozenset().union(*(each.refused_by for each in made))
            for each in made:
                decisions.pop(each.pod, None)
                decisions[each.pod] = each
                if each.node:
                    happened.add(Event.POD_PLACED)
                if each.untried:
                    untried.add(unit.name)
                if each.evicted:
                    happened.add(Event.POD_GONE)
                    evicted.update(dict.fromkeys(each.evicted))
        if not happened and not untried:
            break
    gone = tuple(key for key in evicted if not (decisions.get(key) or _NOWHERE).node)
    return Course(decisions=decisions, evicted=gone)


_NOWHERE = Decision(pod="")


def try_unit(state: State, unit: Unit, *, preempts: bool = True) -> list[Decision]:
    """One attempt, with its effects."""
    if unit.name.startswith(gangs.UNIT):
        return _try_group(state, unit.name.removeprefix(gangs.UNIT), preempts)
    return [_try_pod(state, state.waiting[unit.name], preempts)]


def _try_pod(state: State, pod: Pod, preempts: bool) -> Decision:
    engine = state.engine(pod)
    outcome = engine.place(pod)
    evicted: tuple[str, ...] = ()
    if isinstance(outcome, Failure) and preempts:
        evicted = _make_room(state, engine, outcome)
        if evicted:
            outcome = engine.place(pod)
    return _settled(state, outcome, evicted)


def _make_room(state: State, engine: Engine, failure: Failure) -> tuple[str, ...]:
    pod = failure.pod
    preemptor = state.parts.preemptors.get(pod.scheduler)
    may_help = state.parts.may_evict(pod) and may_make_room(engine, failure)
    if preemptor is None or not may_help:
        return ()
    try:
        found = preemptor.preempt(pod, tuple(state.budgets.values()))
    except PluginError:
        return ()
    if not isinstance(found, Preemption) or not found.victims:
        return ()
    engine.nominate(pod, found.node)
    return _evict(state, found.victims)


def _try_group(state: State, group: str, preempts: bool) -> list[Decision]:
    book = state.parts.gangs
    assert book is not None
    pending = book.pending(group)
    if not pending:
        return []
    engine = state.engine(pending[0])
    outcome = gangs.place_group(engine, book, group, state.network)
    evicted: tuple[str, ...] = ()
    if isinstance(outcome, gangs.GroupFailed) and preempts:
        room = gangs.make_room(engine, book, outcome, network=state.network)
        if isinstance(room, JobPreemption):
            for pod in outcome.pods:
                if pod.key in room.nominations:
                    engine.nominate(pod, room.nominations[pod.key])
            evicted = _evict(state, (v for each in room.victims.values() for v in each))
            outcome = gangs.place_group(engine, book, group, state.network)
    if isinstance(outcome, gangs.GroupFailed):
        return [
            Decision(
                pod=pod.key,
                uid=pod.uid,
                why=outcome.text(pod.key),
                refused_by=outcome.refused_by,
                evicted=evicted if pod is outcome.pods[0] else (),
                group=group,
            )
            for pod in outcome.pods
        ]
    found: tuple[Placement | Failure, ...] = (*outcome.placements, *outcome.left)
    made = [_settled(state, each, (), group) for each in found]
    if evicted and made:
        made[0] = msgspec.structs.replace(made[0], evicted=evicted)
    return made


def _evict(state: State, victims: Iterable[Pod]) -> tuple[str, ...]:
    """Their workloads make them again at once."""
    going = tuple(victims)
    state.spend(going)
    for victim in going:
        state.drop(victim.key)
        if victim.owner.name and victim.scheduler in state.parts.engines:
            state.put(bare(victim))
    return tuple(victim.key for victim in going)


def _settled(
    state: State, outcome: Placement | Failure, evicted: tuple[str, ...], group: str = ""
) -> Decision:
    pod = outcome.pod
    if isinstance(outcome, Failure):
        return Decision(
            pod=pod.key,
            uid=pod.uid,
            why=outcome.text(),
            refused_by=outcome.plugins,
            evicted=evicted,
            group=group,
            untried=bool(outcome.untried),
        )
    bound = msgspec.structs.replace(
        pod,
        node=outcome.node,
        nominated="",
        scheduled_s=state.cluster.now_s,
        annotations={**pod.annotations, **outcome.annotations},
    )
    state.put(bound)
    hand_over(state.cluster, pod.uid, lenders(outcome.claim))
    return Decision(
        pod=pod.key,
        uid=pod.uid,
        node=outcome.node,
        annotations=outcome.annotations,
        evicted=evicted,
        group=group,
    )
