"""NodeNUMAResource: CPUs of their own and NUMA nodes for pods (spec/central.md 5)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import CPU as CPU_COLUMN
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import (
    FITS,
    Codes,
    Normalize,
    Plugin,
    Refusal,
    Verdict,
    reason,
)
from koord_scheduler.place.numa.accumulate import LEAST, MOST, Wish, usable
from koord_scheduler.place.numa.allocate import (
    Chosen,
    Scoring,
    choose,
    counts_in_score,
    grant,
    plan,
    score_of,
)
from koord_scheduler.place.numa.free import State, cpus_held_by, left_for, state_of
from koord_scheduler.place.numa.hints import Given
from koord_scheduler.place.numa.request import Ask, RequestError, read_ask
from koord_scheduler.place.numa.sites import Sites, site_of
from koord_scheduler.place.numa.summary import node_summary
from koord_scheduler.place.numa.types import NAME, NO_POLICY, SINGLE_NUMA_NODE, Grant
from koord_scheduler.place.numa.wire import binding_annotations, read_grant
from koordlet.protocol.resources import CPU, MEMORY

AMPLIFIED = "Insufficient amplified cpu"
_OF_NODE = -1
"""The score of a node is that of the node as a whole."""
_DEVICES, _RESERVATION = "DeviceShare", "Reservation"
Provider = Callable[[Cluster, Pod, int], Given]
Reservations = Callable[[Cluster, PodClass, int], Iterable[str]]
Credit = Callable[[Cluster, PodClass, Rows], Ints | None]


class Weight(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1


class Strategy(msgspec.Struct, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[Weight, ...] = (Weight(CPU), Weight(MEMORY))


class NumaArgs(Args, frozen=True, kw_only=True):
    """Of ``numa_scoring_strategy`` the type counts alone, as in the reference."""

    default_cpu_bind_policy: Literal["FullPCPUs", "SpreadByPCPUs"] = msgspec.field(
        default="FullPCPUs", name="defaultCPUBindPolicy"
    )
    scoring_strategy: Strategy = Strategy()
    numa_scoring_strategy: Strategy = Strategy()


class _Known:
    """Of one class: what it asks for, and the verdict on each site that it was tried on."""

    __slots__ = ("ask", "code", "epoch", "known", "score", "why")

    def __init__(self, ask: Ask, code: int) -> None:
        self.ask, self.code = ask, code
        self.forget(0)

    def forget(self, epoch: int) -> None:
        self.epoch = epoch
        self.known: Bools = np.zeros(0, np.bool_)
        self.why: Codes = np.zeros(0, np.int16)
        self.score: Ints = np.zeros(0, np.int64)

    def grow(self, size: int) -> None:
        more = size - len(self.known)
        if more > 0:
            more += size
            self.known = np.pad(self.known, (0, more))
            self.why = np.pad(self.why, (0, more))
            self.score = np.pad(self.score, (0, more))


class NodeNumaResource:
    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: NumaArgs) -> None:
        self.args = args
        most = args.scoring_strategy.type == MOST
        numa_most = args.numa_scoring_strategy.type == MOST
        weights = {each.name: each.weight for each in args.scoring_strategy.resources}
        self.scoring = Scoring(weights, most, numa_most)
        self.strategy = MOST if numa_most else LEAST
        self._sites = Sites()
        self._known: weakref.WeakKeyDictionary[PodClass, _Known] = weakref.WeakKeyDictionary()
        self._provider: Provider | None = None
        self._reservations: Reservations | None = None
        self._credit: Credit | None = None
        self.services = {"nodes/{node}": _summary}

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        """Devices have hints of their own; reservations say which of them a pod may use on a
        node."""
        self._provider = getattr(plugins.get(_DEVICES), "hints", None)
        self._reservations = getattr(plugins.get(_RESERVATION), "usable", None)
        self._credit = getattr(plugins.get(_RESERVATION), "credit", None)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.requests)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        known = self._of(pod)
        if known.code != FITS:
            return Verdict(np.full(len(rows), known.code, np.int16))
        numbers = self._sites.numbers(cluster)[rows]
        self._try_new(known, numbers)
        why, score = known.why[numbers], known.score[numbers]
        if self._reservations is not None:
            refused = (why != FITS) & np.isin(rows, cluster.reserved_rows())
            for i in np.flatnonzero(refused).tolist():
                names = self._reservations(cluster, pod, int(rows[i]))
                if any(self._fits_in(cluster, known.ask, int(rows[i]), n) for n in names):
                    why[i], score[i] = FITS, 0
        used = self._used(cluster, known.ask, rows, numbers)
        self._amplified(cluster, pod, rows, numbers, used, why)
        whole = np.flatnonzero(score == _OF_NODE)
        if len(whole):
            score[whole] = self._score(cluster, known.ask, rows[whole], used[whole])
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> Grant | Refusal | None:
        known = self._of(pod.cls)
        if known.code != FITS:
            return Refusal(known.code)
        reservation: str = getattr(grants.get(_RESERVATION), "reservation", "")
        state = state_of(site_of(cluster, row, reservation))
        planned = plan(known.ask, state.site, self.strategy)
        if isinstance(planned, str):
            return Refusal(reason(NAME, planned, unresolvable=True))
        if not planned.gives:
            return None
        given: Given | None = None
        if planned.policy != NO_POLICY and self._provider is not None:
            given = self._provider(cluster, pod, row)
        chosen = choose(known.ask, state, self.scoring, self.strategy, given)
        if isinstance(chosen, int):
            return Refusal(chosen)
        preferred = 0
        if reservation:
            preferred = cpus_held_by(cluster.claims_on(row).values(), reservation)
        found = grant(chosen, state, preferred)
        if found is None:
            return Refusal(reason(NAME, "not enough cpus available to satisfy request"))
        return found

    def annotations(self, pod: Pod, grant: Grant) -> Mapping[str, str]:
        return binding_annotations(pod, grant)

    def recognise(self, pod: Pod) -> Grant | None:
        return read_grant(pod)

    def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
        """How many such pods the CPUs and NUMA nodes of each row let in, never fewer than do."""
        known = self._of(pod)
        if known.code != FITS:
            return np.zeros(len(rows), np.int64)
        numbers = self._sites.numbers(cluster)[rows]
        distinct, where = np.unique(numbers, return_inverse=True)
        found = [self._most(known.ask, self._sites.all[n], most) for n in distinct.tolist()]
        counts: Ints = np.array(found, np.int64)[where]
        if self._reservations is not None:
            for i in np.flatnonzero(np.isin(rows, cluster.reserved_rows())).tolist():
                if any(True for _ in self._reservations(cluster, pod, int(rows[i]))):
                    counts[i] = most
        return counts

    def _of(self, pod: PodClass) -> _Known:
        known = self._known.get(pod)
        if known is None:
            try:
                known = _Known(read_ask(pod, self.args.default_cpu_bind_policy), FITS)
            except RequestError as error:
                known = _Known(Ask({}), reason(NAME, str(error), unresolvable=True))
            self._known[pod] = known
        return known

    def _try_new(self, known: _Known, numbers: Ints) -> None:
        sites = self._sites
        if known.epoch != sites.epoch:
            known.forget(sites.epoch)
        known.grow(len(sites.all))
        fresh = numbers[~known.known[numbers]]
        for number in np.unique(fresh).tolist():
            state = sites.all[number]
            chosen = choose(known.ask, state, self.scoring, self.strategy)
            known.known[number] = True
            if isinstance(chosen, int):
                known.why[number] = chosen
            elif chosen.plan.policy == NO_POLICY:
                known.score[number] = _OF_NODE
            else:
                known.score[number] = score_of(chosen, state, known.ask, self.scoring)

    def _fits_in(self, cluster: Cluster, ask: Ask, row: int, reservation: str) -> bool:
        state = state_of(site_of(cluster, row, reservation))
        return isinstance(choose(ask, state, self.scoring, self.strategy), Chosen)

    # Amplified CPU (5.8) and the score of nodes as a whole (5.9).

    def _used(self, cluster: Cluster, ask: Ask, rows: Rows, numbers: Ints) -> Ints:
        """CPU of each node with this pod, in amplified milli-cores."""
        sites = self._sites
        ratio, bound = sites.ratio[numbers], sites.bound_milli[numbers]
        used: Ints = cluster.requested[rows, CPU_COLUMN] + (bound * ratio).astype(np.int64) - bound
        binds = sites.forces[numbers] | ask.binds
        need = ask.cpu_milli
        used += np.where(binds, (need * ratio).astype(np.int64), need)
        return used

    def _amplified(
        self,
        cluster: Cluster,
        pod: PodClass,
        rows: Rows,
        numbers: Ints,
        used: Ints,
        why: Codes,
    ) -> None:
        amplified = self._sites.ratio[numbers] > 1
        if not cluster.vector(pod)[CPU_COLUMN] or not amplified.any():
            return
        free = cluster.allocatable[rows, CPU_COLUMN] - used
        credit = self._credit(cluster, pod, rows) if self._credit is not None else None
        if credit is not None:
            free = free + credit[:, CPU_COLUMN]
        why[amplified & (free < 0) & (why == FITS)] = reason(NAME, AMPLIFIED)

    def _score(self, cluster: Cluster, ask: Ask, rows: Rows, used_cpu: Ints) -> Ints:
        total = np.zeros(len(rows), np.int64)
        weights = 0
        for name, weight in self.scoring.weights.items():
            if not counts_in_score(name, ask.amounts):
                continue
            weights += weight
            column = cluster.columns.index.get(name)
            if column is None:
                continue
            offered = cluster.allocatable[rows, column]
            used = cluster.requested[rows, column] + ask.amounts.get(name, 0)
            used = used_cpu if name == CPU else used
            whole = np.maximum(offered, 1)
            if self.scoring.most:
                total += weight * (np.minimum(used, offered) * 100 // whole)
            else:
                total += weight * np.where(used > offered, 0, (offered - used) * 100 // whole)
        return total // max(weights, 1)

    def _most(self, ask: Ask, state: State, most: int) -> int:
        planned = plan(ask, state.site, self.strategy)
        if isinstance(planned, str):
            return 0
        wish, topology = planned.wish, state.site.shape.topology
        if wish is not None:
            most = min(most, usable(topology, state.free, wish).bit_count() // wish.cpus)
        if planned.policy == NO_POLICY:
            return most
        zones = left_for(state, _loosest(wish), ask.amounts)
        names = [name for name in ask.amounts if any(name in there for there in zones.values())]
        if planned.policy == SINGLE_NUMA_NODE:
            each = [
                min((there.get(name, 0) // ask.amounts[name] for name in names), default=most)
                for there in zones.values()
            ]
            return min(most, sum(each))
        for name in names:
            all_zones = sum(there.get(name, 0) for there in zones.values())
            most = min(most, all_zones // ask.amounts[name])
        return most


def _summary(cluster: Cluster, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Raises `summary.InvalidTopologyError`."""
    return node_summary(cluster, names["node"])


def _loosest(wish: Wish | None) -> Wish | None:
    """Shares of one CPU, so that what is counted is never too little."""
    return wish._replace(required=False) if wish is not None else None


def make(args: Mapping[str, Any]) -> NodeNumaResource:
    """Raises ArgumentError."""
    found = read_args(NAME, NumaArgs, args)
    for each in (*found.scoring_strategy.resources, *found.numa_scoring_strategy.resources):
        if not 1 <= each.weight <= 100:
            raise ArgumentError(
                f"{NAME}: {each.name} has weight {each.weight} in a scoring strategy; "
                "it must be 1 to 100"
            )
    return NodeNumaResource(found)
