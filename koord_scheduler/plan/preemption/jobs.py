"""Room for a whole gang at once, by evictions of pods of lower priority
(docs/reference/central.md 8.2).

Nothing is evicted here: the plan says who goes and which node each member is nominated to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.model.cluster.verdict import FITS, REASONS
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.network import Network, place_job
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.pods import VICTIMS_LEAVE, Ledger
from koord_scheduler.plan.preemption.quotas import evict_until_admitted, who_may_go
from koord_scheduler.plan.preemption.victims import importance, preemptible
from koordlet.protocol.keys import QUESTIONED_OBJECT_KEY

FAILURE = "JobPreemptionFailurePlugin"
"""Who rejects the members of a gang for which no room can be made
(docs/reference/central.md 8.4)."""


class JobPreemption(msgspec.Struct, frozen=True):
    """``victims``: by node. ``nominations``: key of each member -> its node."""

    victims: Mapping[str, tuple[Pod, ...]]
    nominations: Mapping[str, str]


class NoJobPreemption(msgspec.Struct, frozen=True):
    words: str


class _Row:
    """A node that may get members. ``victims`` go when it is first looked at."""

    __slots__ = ("cleared", "cost", "members", "name", "row", "victims")

    def __init__(self, row: int, name: str, victims: list[Claim]) -> None:
        self.row = row
        self.name = name
        self.victims = victims
        self.cost = 0
        self.cleared = False
        self.members: list[Pod] = []


def preempt_for_job(
    engine: Engine,
    trigger: Pod,
    pending: Sequence[Pod],
    ledger: Ledger | None = None,
    asked: str = "",
    network: Network | None = None,
) -> JobPreemption | NoJobPreemption:
    """``trigger``: the member that found no node. ``pending``: all members without one. ``asked``:
    the gang's ``network-topology-spec``, where it counts. Changes nothing. Budgets do not count, as
    in the reference; ``ledger`` may refuse each victim."""
    try:
        return _preempt(engine, trigger, pending, ledger, asked, network)
    except PluginError as error:
        return NoJobPreemption(str(error))


def _preempt(
    engine: Engine,
    trigger: Pod,
    pending: Sequence[Pod],
    ledger: Ledger | None,
    asked: str,
    network: Network | None,
) -> JobPreemption | NoJobPreemption:
    not_eligible = _not_eligible(engine, trigger, pending)
    if not_eligible:
        return NoJobPreemption(not_eligible)
    cluster = engine.cluster
    rows = _rows(engine, trigger)
    _price(rows)
    rows.sort(key=lambda each: (each.cost, each.name))
    freed: list[Claim] = []
    with cluster.trial():
        if asked:
            failure = _place_near(engine, rows, pending, ledger, asked, network)
        else:
            failure = _place(engine, rows, pending, ledger, freed)
        if failure is not None:
            return NoJobPreemption(failure.text())
        used = [each for each in rows if each.members]
        nominations = {pod.key: each.name for each in used for pod in each.members}
        victims = {each.name: _going(engine, each) for each in used}
    for claim in freed:
        victims[claim.node] = (*victims.get(claim.node, ()), claim.pod)
    return JobPreemption({name: pods for name, pods in victims.items() if pods}, nominations)


def _not_eligible(engine: Engine, trigger: Pod, pending: Sequence[Pod]) -> str:
    if not trigger.cls.preempts:
        return "not eligible due to preemptionPolicy=Never."
    cluster = engine.cluster
    own = cluster.row.get(engine.nomination(trigger))
    if own is not None:
        code = int(engine.evaluator.fits(trigger.cls, np.array([own], np.intp))[0])
        if code < FITS or (code != FITS and REASONS[code].unresolvable):
            return ""
    for pod in pending:
        row = cluster.row.get(engine.nomination(pod))
        if row is None:
            continue
        for claim in cluster.claims_on(row).values():
            if claim.pod.terminating and claim.pod.cls.priority < trigger.cls.priority:
                return f"{VICTIMS_LEAVE} {claim.node}."
    return ""


def _rows(engine: Engine, trigger: Pod) -> list[_Row]:
    """Nodes where the trigger fits, or may fit when others go."""
    cluster = engine.cluster
    found: list[_Row] = []
    asked: dict[int, bool] = {}
    for row, code in enumerate(engine.evaluator.judge(trigger.cls).why.tolist()):
        node = cluster.nodes[row]
        if node is None or code < FITS or REASONS[code].unresolvable:
            continue
        victims = [] if code == FITS else _victims(engine, trigger, row, asked)
        if code == FITS or victims:
            found.append(_Row(row, node.name, victims))
    return found


def _victims(engine: Engine, trigger: Pod, row: int, asked: dict[int, bool]) -> list[Claim]:
    found: list[Claim] = []
    for claim in engine.cluster.claims_on(row).values():
        pod = claim.pod
        may = asked.get(pod.cls.number)
        if may is None:
            may = asked[pod.cls.number] = (
                pod.cls.priority < trigger.cls.priority
                and preemptible(pod.cls)
                and all(gate.may_preempt(trigger, pod) for gate in engine.gates)
            )
        if may and not pod.holds:
            found.append(claim)
    return found


def _price(rows: Sequence[_Row]) -> None:
    """Of a node: over the jobs of its victims, the rank of the priority of the job's first
    victim."""
    priorities = {claim.pod.cls.priority for each in rows for claim in each.victims}
    rank = {priority: place for place, priority in enumerate(sorted(priorities))}
    for each in rows:
        jobs: dict[str, int] = {}
        for claim in sorted(each.victims, key=importance):
            jobs.setdefault(_job(claim), rank[claim.pod.cls.priority])
        each.cost = sum(jobs.values())


def _place(
    engine: Engine,
    rows: Sequence[_Row],
    pending: Sequence[Pod],
    ledger: Ledger | None,
    freed: list[Claim],
) -> Failure | None:
    """Each member goes to the cheapest node that takes it; a node that refused one is not asked
    again. ``freed`` gets who goes, from wherever, where a gate refuses a member."""
    gates = {gate.name for gate in engine.gates}
    at = 0
    for pod in pending:
        while at < len(rows):
            each = rows[at]
            _clear(engine, each, ledger)
            outcome = engine.place(pod, np.array([each.row], np.intp))
            if isinstance(outcome, Failure) and outcome.refused_by in gates:
                freed += _freed(engine, pod, ledger)
                outcome = engine.place(pod, np.array([each.row], np.intp))
            if isinstance(outcome, Placement):
                each.members.append(pod)
                break
            if outcome.refused_by:
                return outcome
            at += 1
            if not each.members:
                for claim in each.victims:
                    engine.cluster.add(claim)
        else:
            return Failure(
                pod=pod,
                nodes=int(engine.cluster.alive.sum()),
                refused_by=FAILURE,
                words="the gang does not fit even without pods of lower priority",
            )
    return None


def _freed(engine: Engine, pod: Pod, ledger: Ledger | None) -> list[Claim]:
    """Who goes so that no gate refuses the pod; those that terminate anyway go first."""
    cluster = engine.cluster
    classes = [
        number
        for number, cls in cluster.class_of.items()
        if cls.priority < pod.cls.priority and preemptible(cls)
    ]
    may_go = who_may_go(engine, pod, classes)
    for claim in may_go:
        if claim.pod.terminating:
            cluster.remove(claim.pod.key)
    going = [
        claim
        for claim in may_go
        if not claim.pod.terminating and (ledger is None or ledger(claim.pod, claim.node) is None)
    ]
    found = evict_until_admitted(engine, pod, going, ())
    return found[0] if found is not None else []


def _place_near(
    engine: Engine,
    rows: list[_Row],
    pending: Sequence[Pod],
    ledger: Ledger | None,
    asked: str,
    network: Network | None,
) -> Failure | None:
    """Where the network wants them, on nodes whose victims are all away at first."""
    for each in rows:
        _clear(engine, each, ledger)
    outcome = place_job(engine, network, asked, pending)
    if isinstance(outcome, Failure):
        return outcome
    by_name = {each.name: each for each in rows}
    for placement in outcome:
        engine.cluster.add(placement.claim)
        name = placement.node
        if name not in by_name:
            # A member of another class than the trigger's, where the trigger may not go.
            by_name[name] = _Row(engine.cluster.row[name], name, [])
            rows.append(by_name[name])
        by_name[name].members.append(placement.pod)
    for each in rows:
        if not each.members:
            for claim in each.victims:
                engine.cluster.add(claim)
    return None


def _clear(engine: Engine, row: _Row, ledger: Ledger | None) -> None:
    """Takes away the victims that may go. The ledger is asked here, because it may simulate each
    eviction."""
    if row.cleared:
        return
    row.cleared = True
    row.victims = [
        claim
        for claim in row.victims
        if claim.pod.key in engine.cluster.claims
        and (ledger is None or ledger(claim.pod, row.name) is None)
    ]
    for claim in row.victims:
        engine.cluster.remove(claim.pod.key)


def _going(engine: Engine, row: _Row) -> tuple[Pod, ...]:
    """Victims come back, the most important first, while all members still fit."""
    going: list[Pod] = []
    for claim in sorted(row.victims, key=_reprieve):
        if not _can_stay(engine, row, claim):
            going.append(claim.pod)
            continue
        for pod in row.members:
            engine.cluster.remove(pod.key)
        engine.cluster.add(claim)
        for pod in row.members:
            engine.place(pod, np.array([row.row], np.intp))
    return tuple(going)


def _can_stay(engine: Engine, row: _Row, claim: Claim) -> bool:
    with engine.cluster.trial():
        for pod in row.members:
            engine.cluster.remove(pod.key)
        engine.cluster.add(claim)
        return all(
            isinstance(engine.place(pod, np.array([row.row], np.intp)), Placement)
            for pod in row.members
        )


def _job(claim: Claim) -> str:
    """Victims without the label are all of one job."""
    return claim.pod.labels.get(QUESTIONED_OBJECT_KEY.name, "")


def _reprieve(claim: Claim) -> tuple[int, str, str]:
    return (-claim.pod.cls.priority, _job(claim), claim.pod.key)
