"""Room for a pod of higher priority: which pods of lower priority have to go, and from which node.

The rules are kube-scheduler's (`pkg/scheduler/framework/preemption`), with what gates and the
protocol's labels forbid (docs/reference/central.md 4.8, 8.2, 8.3). Nothing is evicted here.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koord_scheduler.model.cluster.columns import Bools, Rows
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.model.cluster.verdict import FITS, REASONS, Codes
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import GONE
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.budgets import Budget, Ready, ready, split
from koord_scheduler.plan.preemption.quotas import evict_until_admitted, who_may_go
from koord_scheduler.plan.preemption.victims import (
    Ask,
    Candidate,
    Potentials,
    Search,
    Searches,
    Sketch,
    candidate_of,
    cost,
    importance,
    preemptible,
)

Ledger = Callable[[Pod, str], str | None]
"""Asked before a pod is chosen to go from a node: None, or why it must stay."""
_MOST_REFUSALS = 16
SLICE_S = 0.04
"""CPU that an attempt with a look for victims takes at once, of which the look has a quarter at
least; it goes on when it is the pod's turn again."""
MOST_S = 0.2
"""Of all slices in a row. Then the best that was found has to do, or the pod must rest before it
goes on with other nodes."""
_CUT = "not all nodes were looked at yet"
_NO_VICTIMS = "No preemption victims found for incoming pod"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
VICTIMS_LEAVE = "not eligible due to a terminating pod on the nominated node"


class PreemptionArgs(Args, frozen=True):
    """Of ``DefaultPreemption``. How many nodes are looked at closely: this part of all, and no
    fewer than the number, until enough of them have been found to help."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


def preemption_args(given: Mapping[str, Any]) -> PreemptionArgs:
    """Raises ArgumentError."""
    found = read_args("DefaultPreemption", PreemptionArgs, given)
    part, number = found.min_candidate_nodes_percentage, found.min_candidate_nodes_absolute
    check_range("DefaultPreemption", "minCandidateNodesPercentage", part, 0, 100)
    check_range("DefaultPreemption", "minCandidateNodesAbsolute", number, 0, None)
    if not (part or number):
        text = "minCandidateNodesPercentage and minCandidateNodesAbsolute are 0; one must be more"
        raise ArgumentError(f"DefaultPreemption: {text}")
    return found


def may_make_room(engine: Engine, failure: Failure) -> bool:
    """Return whether evictions may help where this was said."""
    return failure.resolvable or failure.refused_by in {gate.name for gate in engine.gates}


class Preemption(msgspec.Struct, frozen=True):
    """``victims``: who has to go from ``node``, the least important first; empty where those that
    terminate anyway make room. ``violations``: how many of them exceed a disruption budget.
    ``elsewhere``: the node of each victim that is on another, by key: it frees a quota."""

    pod: Pod
    node: str
    victims: tuple[Pod, ...]
    violations: int = 0
    elsewhere: Mapping[str, str] = {}

    def by_node(self) -> dict[str, tuple[Pod, ...]]:
        found: dict[str, tuple[Pod, ...]] = {}
        for victim in self.victims:
            node = self.elsewhere.get(victim.key, self.node)
            found[node] = (*found.get(node, ()), victim)
        return found


class NoPreemption(msgspec.Struct, frozen=True):
    """``words`` as kube-scheduler appends them to the condition, without the prefix. ``cut``: not
    all nodes were looked at, for want of time."""

    words: str
    cut: bool = False


class Preemptor:
    """Keeps between calls what pods of lower priority take on each node. ``ledger`` may refuse each
    victim."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger | None = None,
        args: PreemptionArgs | None = None,
    ) -> None:
        self.engine = engine
        self.ledger = ledger
        self.args = args or PreemptionArgs()
        self._potentials = Potentials(engine.cluster)
        self.cpu_s: Callable[[], float] = lambda: 0.0
        """CPU seconds of this thread; without it an attempt takes what it takes."""
        self._until_s = float("inf")
        self._cut = False
        self._searches = Searches()
        self._budgets: tuple[Iterable[Budget], Ready] = ((), {})

    def preempt(
        self, pod: Pod, budgets: Iterable[Budget] = (), spent_s: float = 0.0
    ) -> Preemption | NoPreemption:
        """For a pod that just found no node. Changes nothing: the caller nominates the node
        (`Engine.nominate`) and evicts. ``spent_s``: by the attempt before. Raises PluginError."""
        not_eligible = self._not_eligible(pod)
        if not_eligible:
            return NoPreemption(not_eligible)
        self._until_s = self.cpu_s() + max(SLICE_S - spent_s, SLICE_S / 4)
        if self.engine.refused(pod) is None:
            return self._on_a_node(pod, tuple(budgets))
        return self._in_a_quota(pod, tuple(budgets))

    def _in_a_quota(self, pod: Pod, budgets: Sequence[Budget]) -> Preemption | NoPreemption:
        """One node whose victims are enough, else as many as it takes; nobody goes while those that
        terminate anyway are enough."""
        engine, cluster = self.engine, self.engine.cluster
        claims = who_may_go(engine, pod, self._may_go(pod))
        ending = [claim for claim in claims if claim.pod.terminating]
        with cluster.trial():
            for claim in ending:
                cluster.remove(claim.pod.key)
            if engine.refused(pod) is None:
                return self._wherever(pod, budgets)
        found = self._on_a_node(pod, budgets)
        if isinstance(found, Preemption) or found.cut:
            return found
        with cluster.trial():
            for claim in ending:
                cluster.remove(claim.pod.key)
            going = [
                claim
                for claim in claims
                if not claim.pod.terminating
                and (self.ledger is None or self.ledger(claim.pod, claim.node) is None)
            ]
            freed = evict_until_admitted(engine, pod, going, budgets)
            room = self._wherever(pod, budgets) if freed is not None else found
        if freed is None or not isinstance(room, Preemption):
            return found
        return Preemption(
            pod,
            room.node,
            (*(claim.pod for claim in freed[0]), *room.victims),
            freed[1] + room.violations,
            {claim.pod.key: claim.node for claim in freed[0] if claim.node != room.node},
        )

    def _wherever(self, pod: Pod, budgets: Sequence[Budget]) -> Preemption | NoPreemption:
        """For a pod that no gate refuses."""
        with self.engine.cluster.trial():
            outcome = self.engine.place(pod)
        if isinstance(outcome, Placement):
            return Preemption(pod, outcome.node, ())
        return self._on_a_node(pod, budgets)

    def _on_a_node(self, pod: Pod, budgets: Sequence[Budget]) -> Preemption | NoPreemption:
        cluster = self.engine.cluster
        why = self.engine.evaluator.judge(pod.cls, None, self.engine.veto(pod)).why
        rows = np.flatnonzero(_resolvable(why))
        nodes = int(cluster.alive.sum())
        victims = self._may_go(pod)
        promising = self._promising(pod, rows, victims) if victims else rows[:0]
        if self._budgets[0] is not budgets:
            self._budgets = (budgets, ready(budgets))
        self._cut = False
        refusals: dict[str, int] = {}
        for candidate in self._candidates(pod, promising, victims, self._budgets[1], nodes):
            refusal = self._refusal(pod, candidate)
            if refusal is None:
                return self._chosen(pod, candidate)
            refusals[refusal] = refusals.get(refusal, 0) + 1
            if sum(refusals.values()) >= _MOST_REFUSALS:
                break
        counts = {
            _NOT_HELPFUL: nodes - len(rows),
            _NO_VICTIMS: len(rows) - sum(refusals.values()),
            **refusals,
        }
        if self._cut:
            counts = {_CUT: nodes}
        told = ", ".join(sorted(f"{n} {words}" for words, n in counts.items() if n > 0))
        words = f"0/{nodes} nodes are available: {told}." if told else "no nodes."
        return NoPreemption(words, self._cut)

    def goes_on(self, pod: Pod) -> bool:
        """Return whether a look for victims of this pod was cut, and may go on at once."""
        return self._searches.goes_on(pod.uid)

    def _not_eligible(self, pod: Pod) -> str:
        if pod.cls.unsupported or pod.gates:
            return "not eligible: no eviction helps."
        if not pod.cls.preempts:
            return "not eligible due to preemptionPolicy=Never."
        cluster = self.engine.cluster
        row = cluster.row.get(self.engine.nomination(pod))
        if row is None:
            return ""
        code = int(self.engine.evaluator.fits(pod.cls, np.array([row], np.intp))[0])
        if code == GONE or (code != FITS and REASONS[code].unresolvable):
            return ""
        for claim in cluster.claims_on(row).values():
            if claim.pod.terminating and claim.pod.cls.priority < pod.cls.priority:
                return f"{VICTIMS_LEAVE}."
        return ""

    def _may_go(self, pod: Pod) -> frozenset[int]:
        """Numbers of the classes of lower priority. Gates are asked about one pod of each class
        later: they decide by class."""
        return frozenset(
            number
            for number, cls in self.engine.cluster.class_of.items()
            if cls.priority < pod.cls.priority and preemptible(cls)
        )

    def _promising(self, pod: Pod, rows: Rows, victims: frozenset[int]) -> Rows:
        """The rows that would have the room if all that may go went. They start at a place that
        depends on the pod, so that pods that preempt at once look at different nodes."""
        cluster = self.engine.cluster
        amounts = self._potentials.of(victims)[rows]
        ask = cluster.vector(pod.cls)
        columns = np.flatnonzero(ask)
        free = (cluster.allocatable[rows] - cluster.requested[rows] + amounts)[:, columns]
        enough = (free >= ask[columns]).all(axis=1)
        enough |= np.isin(rows, cluster.reserved_rows())  # its users have room beside ``free``
        found = rows[enough & amounts.any(axis=1)]
        if not len(found):
            return found
        return np.roll(found, -(zlib.crc32(pod.uid.encode()) % len(found)))

    def _candidates(
        self,
        pod: Pod,
        rows: Rows,
        victims: frozenset[int],
        budgets: Ready,
        nodes: int,
    ) -> Iterator[Candidate]:
        """The best first. Sums tell who would go, and so in which order nodes are worth a closer
        look by all plugins."""
        enough = max(
            nodes * self.args.min_candidate_nodes_percentage // 100,
            self.args.min_candidate_nodes_absolute,
        )
        asked: dict[int, bool] = {}
        ask = Ask(self.engine, pod)
        search, begun_s = self._searches.take(pod.uid), self.cpu_s()
        order = rows.tolist()
        search.resume(self.engine.cluster, order)
        heap = search.heap
        while True:
            harmless = not all(entry[0][0] for entry in heap)
            while not (harmless and len(heap) >= enough):
                if heap and search.spent_s + self.cpu_s() - begun_s > MOST_S / 2:
                    break
                row = search.next_row(order)
                if row is None:
                    break
                sketch = self._sketch(ask, row, victims, asked, budgets)
                if sketch is not None:
                    optimistic = candidate_of(sketch, sketch.stay)
                    harmless = harmless or not optimistic.violations
                    search.put(cost(optimistic), sketch)
                if self.cpu_s() > self._until_s:
                    yield from self._pause(pod, search, begun_s)
                    return
            if not heap:
                return
            while heap:
                _, serial, best = heapq.heappop(heap)
                if isinstance(best, Candidate):
                    yield best
                    continue
                candidate = self._looked_at(pod, best)
                if candidate is not None:
                    heapq.heappush(heap, (cost(candidate), serial, candidate))
                if self.cpu_s() > self._until_s:
                    yield from self._pause(pod, search, begun_s)
                    return

    def _pause(self, pod: Pod, search: Search, begun_s: float) -> Sequence[Candidate]:
        """Cut the search: it goes on at the pod's next turn. Once it took too much, what it found
        by now, which is given, has to do, and the rest is for an attempt after a rest."""
        search.spent_s += self.cpu_s() - begun_s
        self._cut = True
        found: list[Candidate] = []
        if search.spent_s >= MOST_S:
            search.spent_s = 0.0
            ordered = sorted(search.heap, key=lambda entry: entry[:2])
            found = [each for _, _, each in ordered if isinstance(each, Candidate)]
            search.heap = [each for each in search.heap if isinstance(each[2], Sketch)]
            heapq.heapify(search.heap)
        self._searches.keep(pod.uid, search, self.engine.cluster)
        return found

    def _sketch(
        self,
        ask: Ask,
        row: int,
        victims: frozenset[int],
        asked: dict[int, bool],
        budgets: Ready,
    ) -> Sketch | None:
        going: list[Claim] = []
        ending: list[Claim] = []
        for claim in self.engine.cluster.claims_on(row).values():
            number = claim.pod.cls.number
            if number not in victims or claim.pod.holds:
                continue
            may = asked.get(number)
            if may is None:
                may = all(gate.may_preempt(ask.pod, claim.pod) for gate in self.engine.gates)
                asked[number] = may
            if may:
                (ending if claim.pod.terminating else going).append(claim)
        if not (going or ending):
            return None
        going.sort(key=importance)
        violating, others = split(going, budgets) if budgets else ([], going)
        free = ask.free(row, (*going, *ending))
        stay = set()
        for claim in (*violating, *others):
            amounts = ask.amounts(claim.pod.cls)
            left = [have - amount for have, amount in zip(free, amounts, strict=True)]
            if min(left) >= 0:
                free = left
                stay.add(claim.pod.key)
        return Sketch(row, tuple(violating), tuple(others), tuple(ending), frozenset(stay))

    def _looked_at(self, pod: Pod, sketch: Sketch) -> Candidate | None:
        """By all plugins. Where they do not agree with the sums, each pod is spared in turn if the
        pod still fits."""
        cluster, row = self.engine.cluster, sketch.row
        going = (*sketch.violating, *sketch.others)
        with cluster.trial():
            for claim in sketch.ending:
                cluster.remove(claim.pod.key)
            for nominated in self.engine.ahead(pod, row):
                cluster.add(nominated)
            for claim in going:
                if claim.pod.key not in sketch.stay:
                    cluster.remove(claim.pod.key)
            if self._fits(pod, row):
                stay = sketch.stay
            else:
                for key in sketch.stay:
                    cluster.remove(key)
                if not self._fits(pod, row):
                    return None
                stay = self._spared(pod, row, going)
        candidate = candidate_of(sketch, stay)
        return candidate if candidate.victims or sketch.ending else None

    def _spared(self, pod: Pod, row: int, going: Sequence[Claim]) -> frozenset[str]:
        cluster = self.engine.cluster
        kept = set()
        for claim in going:
            cluster.add(claim)
            if self._fits(pod, row):
                kept.add(claim.pod.key)
            else:
                cluster.remove(claim.pod.key)
        return frozenset(kept)

    def _fits(self, pod: Pod, row: int) -> bool:
        return self.engine.refused(pod) is None and self.engine.fits(pod, row) == FITS

    def _refusal(self, pod: Pod, candidate: Candidate) -> str | None:
        if self.ledger is None:
            return None
        node = self.engine.cluster.nodes[candidate.row]
        for claim in candidate.victims:
            refusal = self.ledger(claim.pod, node.name if node is not None else "")
            if refusal is not None:
                return refusal
        return None

    def _chosen(self, pod: Pod, candidate: Candidate) -> Preemption:
        node = self.engine.cluster.nodes[candidate.row]
        assert node is not None
        victims = tuple(claim.pod for claim in candidate.victims)
        return Preemption(pod, node.name, victims, candidate.violations)


def _resolvable(why: Codes) -> Bools:
    """Rows where evictions may help. Where all plugins agree, a gate or an allocator refused."""
    found = np.zeros(len(why), np.bool_)
    for code in np.unique(why).tolist():
        if code != GONE and not REASONS[code].unresolvable:
            found |= why == code
    return found
