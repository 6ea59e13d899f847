"""NodeNUMAResource: CPUs of their own and NUMA nodes for pods (docs/reference/central.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import CPU, Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Plugin, Refusal, Verdict, reason
from koord_scheduler.place.grants import Loan, loan_of
from koord_scheduler.place.node_states import Tries
from koord_scheduler.place.numa import whole
from koord_scheduler.place.numa.accumulate import LEAST, MOST
from koord_scheduler.place.numa.allocate import (
    Chosen,
    Scoring,
    choose,
    grant,
    offered,
    plan,
    score_of,
)
from koord_scheduler.place.numa.arguments import NumaArgs, numa_args
from koord_scheduler.place.numa.free import State, cpus_lent, kept_to, state_of
from koord_scheduler.place.numa.hints import Given
from koord_scheduler.place.numa.request import Ask, read_ask
from koord_scheduler.place.numa.sites import Sites, site_of
from koord_scheduler.place.numa.summary import node_summary
from koord_scheduler.place.numa.types import NAME, NO_POLICY, Grant
from koord_scheduler.place.numa.wire import binding_annotations, read_grant

AMPLIFIED = "Insufficient amplified cpu"
_OF_NODE = -1
"""The score of a node is that of the node as a whole."""
_DEVICES, _RESERVATION = "DeviceShare", "Reservation"
Provider = Callable[[Cluster, Pod, int, Loan], Given]
Credit = Callable[[Cluster, PodClass, Rows], Ints | None]


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
        self._tries = Tries(
            NAME,
            self._sites,
            lambda pod: read_ask(pod, args.default_cpu_bind_policy),
            self._attempt,
        )
        self._provider: Provider | None = None
        self._credit: Credit | None = None
        self.services = {"nodes/{node}": _summary}

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        """Devices have hints of their own; reservations say which of them a pod may use on a
        node."""
        self._provider = getattr(plugins.get(_DEVICES), "hints", None)
        self._tries.loans = getattr(plugins.get(_RESERVATION), "loans", None)
        self._credit = getattr(plugins.get(_RESERVATION), "credit", None)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.requests)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        tried = self._tries.of(pod)
        ask = tried.ask
        if ask is None:
            return Verdict(np.full(len(rows), tried.code, np.int16))
        sites = self._sites
        numbers = sites.numbers(cluster)[rows]
        why, score = self._tries.judge(tried, numbers)
        for i in self._tries.let_in(
            cluster, pod, rows, why, lambda row, loan: self._fits_with(cluster, ask, row, loan)
        ):
            why[i], score[i] = FITS, 0
        used = whole.used_cpu(cluster, sites, ask, rows, numbers)
        if sites.amplified and cluster.vector(pod)[CPU]:
            credit = self._credit(cluster, pod, rows) if self._credit is not None else None
            short = whole.short_of_cpu(cluster, sites, rows, numbers, used, credit)
            why[short & (why == FITS)] = reason(NAME, AMPLIFIED)
        of_node = (score == _OF_NODE).nonzero()[0]
        if len(of_node) == len(rows):
            score = whole.score(cluster, ask, self.scoring, rows, used)
        elif len(of_node):
            score[of_node] = whole.score(cluster, ask, self.scoring, rows[of_node], used[of_node])
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> Grant | Refusal | None:
        tried = self._tries.of(pod.cls)
        if tried.ask is None:
            return Refusal(tried.code)
        loan = loan_of(grants)
        state = _state(cluster, row, loan)
        planned = plan(tried.ask, state.site, self.strategy)
        if isinstance(planned, str):
            return Refusal(reason(NAME, planned, unresolvable=True))
        if not planned.gives:
            return None
        given: Given | None = None
        if planned.policy != NO_POLICY and self._provider is not None:
            given = self._provider(cluster, pod, row, loan)
        chosen = choose(tried.ask, state, self.scoring, self.strategy, given)
        if isinstance(chosen, int):
            return Refusal(chosen)
        preferred = cpus_lent(cluster.claims_on(row).values(), loan) if loan.keys else 0
        found = grant(chosen, state, preferred)
        if found is None or (loan.whole and preferred & ~found.cpus):
            return Refusal(reason(NAME, "not enough cpus available to satisfy request"))
        return found

    def annotations(self, pod: Pod, grant: Grant) -> Mapping[str, str]:
        return binding_annotations(pod, grant)

    def recognise(self, pod: Pod) -> Grant | None:
        return read_grant(pod)

    def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
        """How many such pods the CPUs and NUMA nodes of each row let in, never fewer than do."""
        return self._tries.offers(
            cluster, pod, rows, most, lambda ask, state: offered(ask, state, self.strategy, most)
        )

    def _attempt(self, ask: Ask, state: State) -> tuple[int, int]:
        chosen = choose(ask, state, self.scoring, self.strategy)
        if isinstance(chosen, int):
            return chosen, 0
        if chosen.plan.policy == NO_POLICY:
            return FITS, _OF_NODE
        return FITS, score_of(chosen, state, ask, self.scoring)

    def serves(self, cluster: Cluster, pod: PodClass, row: int, loan: Loan) -> bool:
        """Return whether such a pod gets what it asks for, and all of a loan that is whole."""
        ask = self._tries.of(pod).ask
        if ask is None:
            return True
        state = _state(cluster, row, loan)
        chosen = choose(ask, state, self.scoring, self.strategy)
        if not isinstance(chosen, Chosen):
            return False
        lent = cpus_lent(cluster.claims_on(row).values(), loan)
        found = grant(chosen, state, lent)
        return found is not None and not (loan.whole and lent & ~found.cpus)

    def _fits_with(self, cluster: Cluster, ask: Ask, row: int, loan: Loan) -> bool:
        state = _state(cluster, row, loan)
        return isinstance(choose(ask, state, self.scoring, self.strategy), Chosen)


def _state(cluster: Cluster, row: int, loan: Loan) -> State:
    """Return the node as whoever has the loan finds it."""
    state = state_of(site_of(cluster, row, loan))
    if not loan.restricted:
        return state
    return kept_to(state, cluster.claims_on(row).values(), loan)


def _summary(cluster: Cluster, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Raises `summary.InvalidTopologyError`."""
    return node_summary(cluster, names["node"])


def make(args: Mapping[str, Any]) -> NodeNumaResource:
    """Raises ArgumentError."""
    return NodeNumaResource(numa_args(args))
