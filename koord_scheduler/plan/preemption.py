"""Room for a pod of higher priority: which pods of lower priority have to go, and from which node.

The rules are kube-scheduler's (`pkg/scheduler/framework/preemption`), with what gates and the
protocol's labels forbid (spec/central.md 4.8, 8.2, 8.3). Nothing is evicted here.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, REASONS, Codes
from koord_scheduler.plan.budgets import Budget, split
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import GONE
from koordlet.protocol import keys

Ledger = Callable[[Pod, str], str | None]
"""Asked before a pod is chosen to go from a node: None, or why it must stay."""
_LOWEST = 1 << 31
_MOST_KEPT = 4
_NO_VICTIMS = "No preemption victims found for incoming pod"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"


class PreemptionArgs(Args, frozen=True):
    """Of ``DefaultPreemption``. How many nodes are looked at closely: this part of all, and no
    fewer than the number, until enough of them have been found to help."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class Preemption(msgspec.Struct, frozen=True):
    """``victims``: who has to go from ``node``, the least important first; empty where those that
    terminate anyway make room. ``violations``: how many of them exceed a disruption budget."""

    pod: Pod
    node: str
    victims: tuple[Pod, ...]
    violations: int = 0


class NoPreemption(msgspec.Struct, frozen=True):
    """``words`` as kube-scheduler appends them to the condition, without the prefix."""

    words: str


class _Candidate(NamedTuple):
    row: int
    victims: tuple[Claim, ...]
    violations: int


class _Potential:
    """For a set of classes: what all their pods take on each row."""

    __slots__ = ("amounts", "numbers", "version")

    def __init__(self, numbers: frozenset[int]) -> None:
        self.numbers = numbers
        self.version = -1
        self.amounts: Ints = np.zeros((0, 0), np.int64)


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
        self._kept: OrderedDict[frozenset[int], _Potential] = OrderedDict()

    def preempt(self, pod: Pod, budgets: Iterable[Budget] = ()) -> Preemption | NoPreemption:
        """For a pod that just found no node. Changes nothing: the caller nominates the node
        (`Engine.nominate`) and evicts."""
        not_eligible = self._not_eligible(pod)
        if not_eligible:
            return NoPreemption(not_eligible)
        cluster = self.engine.cluster
        why = self.engine.evaluator.judge(pod.cls, None, self.engine.veto(pod)).why
        rows = np.flatnonzero(_resolvable(why))
        nodes = int(cluster.alive.sum())
        victims = self._may_go(pod)
        promising = self._promising(pod, rows, victims) if victims else rows[:0]
        budgets = tuple(budgets)
        found = self._candidates(pod, promising, victims, budgets, nodes)
        refusals: dict[str, int] = {}
        for candidate in sorted(found, key=_cost):
            refusal = self._refusal(pod, candidate)
            if refusal is None:
                return self._chosen(pod, candidate)
            refusals[refusal] = refusals.get(refusal, 0) + 1
        counts = {
            _NOT_HELPFUL: nodes - len(rows),
            _NO_VICTIMS: len(rows) - sum(refusals.values()),
            **refusals,
        }
        told = ", ".join(sorted(f"{n} {words}" for words, n in counts.items() if n > 0))
        return NoPreemption(f"0/{nodes} nodes are available: {told}." if told else "no nodes.")

    def _not_eligible(self, pod: Pod) -> str:
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
                return "not eligible due to a terminating pod on the nominated node."
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
        amounts = self._amounts(victims)[rows]
        ask = cluster.vector(pod.cls)
        columns = np.flatnonzero(ask)
        free = (cluster.allocatable[rows] - cluster.requested[rows] + amounts)[:, columns]
        enough = (free >= ask[columns]).all(axis=1)
        enough |= np.isin(rows, cluster.reserved_rows())  # its users have room beside ``free``
        found = rows[enough & amounts.any(axis=1)]
        if not len(found):
            return found
        return np.roll(found, -(zlib.crc32(pod.uid.encode()) % len(found)))

    def _amounts(self, numbers: frozenset[int]) -> Ints:
        cluster = self.engine.cluster
        kept = self._kept.get(numbers)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.popitem(last=False)
            kept = self._kept[numbers] = _Potential(numbers)
        self._kept.move_to_end(numbers)
        changed = cluster.since(kept.version) if kept.version >= 0 else None
        if changed is None or kept.amounts.shape != cluster.requested.shape:
            kept.amounts = np.zeros_like(cluster.requested)
            for number in numbers:
                counts = cluster.classes.get(number, {})
                where = np.fromiter(counts, np.intp, len(counts))
                many = np.fromiter(counts.values(), np.int64, len(counts))
                kept.amounts[where] += many[:, None] * cluster.vector(cluster.class_of[number])
        else:
            for row in changed:
                kept.amounts[row] = 0
                for claim in cluster.claims_on(int(row)).values():
                    if claim.pod.cls.number in numbers and not claim.pod.holds:
                        kept.amounts[row] += cluster.vector(claim.pod.cls)
        kept.version = cluster.version
        return kept.amounts

    def _candidates(
        self,
        pod: Pod,
        rows: Rows,
        victims: frozenset[int],
        budgets: Sequence[Budget],
        nodes: int,
    ) -> list[_Candidate]:
        enough = max(
            nodes * self.args.min_candidate_nodes_percentage // 100,
            self.args.min_candidate_nodes_absolute,
        )
        found: list[_Candidate] = []
        harmless = False
        asked: dict[int, bool] = {}
        for row in rows.tolist():
            candidate = self._candidate(pod, row, victims, asked, budgets)
            if candidate is not None:
                found.append(candidate)
                harmless = harmless or not candidate.violations
                if harmless and len(found) >= enough:
                    break
        return found

    def _candidate(
        self,
        pod: Pod,
        row: int,
        victims: frozenset[int],
        asked: dict[int, bool],
        budgets: Sequence[Budget],
    ) -> _Candidate | None:
        engine, cluster = self.engine, self.engine.cluster
        going: list[Claim] = []
        for claim in cluster.claims_on(row).values():
            number = claim.pod.cls.number
            if number not in victims or claim.pod.holds:
                continue
            may = asked.get(number)
            if may is None:
                may = all(gate.may_preempt(pod, claim.pod) for gate in engine.gates)
                asked[number] = may
            if may:
                going.append(claim)
        if not going:
            return None
        with cluster.trial():
            for claim in going:
                cluster.remove(claim.pod.key)
            for nominated in engine.ahead(pod, row):
                cluster.add(nominated)
            if not self._fits(pod, row):
                return None
            ending = [claim for claim in going if claim.pod.terminating]
            rest = [claim for claim in going if not claim.pod.terminating]
            violating, others = split(sorted(rest, key=_importance), budgets)
            stay = self._stay(pod, row, (*violating, *others))
        gone = [claim for claim in others if claim.pod.key not in stay]
        against = [claim for claim in violating if claim.pod.key not in stay]
        if not (gone or against or ending):
            return None
        leaving = sorted((*gone, *against), key=_importance, reverse=True)
        return _Candidate(row, tuple(leaving), len(against))

    def _stay(self, pod: Pod, row: int, going: Sequence[Claim]) -> set[str]:
        """Keys of those that can stay, asked in this order. Sums tell most of it; all plugins are
        asked once in the end, and where they disagree for each pod."""
        cluster = self.engine.cluster
        ask = cluster.vector(pod.cls)
        columns = np.flatnonzero(ask)
        free = (cluster.allocatable[row] - cluster.requested[row] - ask)[columns]
        stay: list[Claim] = []
        for claim in going:
            left = free - cluster.vector(claim.pod.cls)[columns]
            if (left >= 0).all():
                free = left
                stay.append(claim)
        if (free >= 0).all():
            if not stay:
                return set()
            with cluster.trial():
                for claim in stay:
                    cluster.add(claim)
                if self._fits(pod, row):
                    return {claim.pod.key for claim in stay}
        kept: set[str] = set()
        for claim in going:
            cluster.add(claim)
            if self._fits(pod, row):
                kept.add(claim.pod.key)
            else:
                cluster.remove(claim.pod.key)
        return kept

    def _fits(self, pod: Pod, row: int) -> bool:
        return self.engine.refused(pod) is None and self.engine.fits(pod, row) == FITS

    def _refusal(self, pod: Pod, candidate: _Candidate) -> str | None:
        if self.ledger is None:
            return None
        node = self.engine.cluster.nodes[candidate.row]
        for claim in candidate.victims:
            refusal = self.ledger(claim.pod, node.name if node is not None else "")
            if refusal is not None:
                return refusal
        return None

    def _chosen(self, pod: Pod, candidate: _Candidate) -> Preemption:
        node = self.engine.cluster.nodes[candidate.row]
        assert node is not None
        victims = tuple(claim.pod for claim in candidate.victims)
        return Preemption(pod, node.name, victims, candidate.violations)


def preemptible(cls: PodClass) -> bool:
    """Whether such pods may go for those of higher priority, by their labels."""
    return (
        cls.labels.get(keys.PREEMPTIBLE.name) != "false"
        and cls.labels.get(keys.DISABLE_PREEMPTIBLE.name) != "true"
    )


def _resolvable(why: Codes) -> Bools:
    """Rows where evictions may help. Where all plugins agree, a gate or an allocator refused."""
    found = np.zeros(len(why), np.bool_)
    for code in np.unique(why).tolist():
        if code != GONE and not REASONS[code].unresolvable:
            found |= why == code
    return found


def _importance(claim: Claim) -> tuple[int, float, str]:
    """The most important first: higher priority, then longer on its node."""
    return (-claim.pod.cls.priority, claim.since_s, claim.pod.key)


def _cost(candidate: _Candidate) -> tuple[int, int, int, int, float]:
    """Fewest budgets exceeded, lowest most important victim, least sum of priorities, fewest
    victims, latest start of the most important ones."""
    victims = candidate.victims
    if not victims:
        return (candidate.violations, -_LOWEST, 0, 0, 0.0)
    priorities = [claim.pod.cls.priority for claim in victims]
    most = max(priorities)
    started = min(claim.since_s for claim in victims if claim.pod.cls.priority == most)
    total = sum(priority + _LOWEST for priority in priorities)
    return (candidate.violations, most, total, len(victims), -started)
