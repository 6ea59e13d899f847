"""What a node can give a pod of CPUs and NUMA nodes (docs/reference/central.md 5.3, 5.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord_scheduler.model.cluster.verdict import reason
from koord_scheduler.place.numa import hints
from koord_scheduler.place.numa.accumulate import FULL_PCPUS, Wish, take, usable
from koord_scheduler.place.numa.free import (
    NOTHING,
    Site,
    State,
    amplified,
    left_for,
    state_of,
    unit_milli,
)
from koord_scheduler.place.numa.request import Ask
from koord_scheduler.place.numa.topology import bits
from koord_scheduler.place.numa.types import (
    NAME,
    NO_POLICY,
    SINGLE_NUMA_NODE,
    Amounts,
    Grant,
)
from koordlet.protocol.resources import CPU, MEMORY

INTEGER = "the requested CPUs must be integer"
_TOO_FEW = "not enough cpus available to satisfy request"
_NATIVE = (CPU, MEMORY, "ephemeral-storage")


class Scoring(NamedTuple):
    """``weights``: by resource. ``most``: what is used more is better; ``numa_most``: where NUMA
    nodes are compared."""

    weights: Mapping[str, int]
    most: bool = False
    numa_most: bool = False


class Plan(NamedTuple):
    """``wish``: of a pod that is bound to CPUs, else None. ``policy``: of NUMA."""

    wish: Wish | None
    policy: str

    @property
    def gives(self) -> bool:
        return self.wish is not None or self.policy != NO_POLICY


class Chosen(NamedTuple):
    """``mask``: the NUMA nodes that the pod must stay on, `hints.ALL` for any; ``zones``: its
    shares of them."""

    plan: Plan
    mask: int
    zones: dict[int, dict[str, int]]


def plan(ask: Ask, site: Site, strategy: str) -> Plan | str:
    """What the node and the pod together want, or why that cannot be."""
    if ask.policy and site.policy and ask.policy != site.policy:
        return "node(s) NUMA Topology policy not match"
    policy = ask.policy or site.policy
    if not ask.binds and not (site.bind and ask.cpu_milli):
        return Plan(None, policy)
    if ask.cpu_milli % 1000:
        return INTEGER
    topology = site.shape.topology
    if not topology.valid:
        return "node(s) invalid CPU Topology"
    required = site.bind or ask.required
    if ask.required and ask.required != required:
        return "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    cpus = ask.cpu_milli // 1000
    if required == FULL_PCPUS and cpus % topology.cpus_per_core:
        return "node(s) requested cpus not multiple cpus per core"
    wish = Wish(
        cpus,
        required or ask.preferred,
        required=bool(required),
        exclusive=ask.exclusive,
        strategy=site.strategy or strategy,
    )
    return Plan(wish, policy)


def choose(
    ask: Ask,
    state: State,
    scoring: Scoring,
    strategy: str,
    given: hints.Given | None = None,
) -> Chosen | int:
    """NUMA nodes and shares, or the code of a reason. ``given``: hints of other plugins. A reason
    that a node without pods would not have can be cured by evictions."""
    found = _choose(ask, state, scoring, strategy, given)
    if not isinstance(found, str):
        return found
    cured = state.site.used != NOTHING and not isinstance(
        _choose(ask, state_of(state.site._replace(used=NOTHING)), scoring, strategy, None), str
    )
    return reason(NAME, found, unresolvable=not cured)


def _choose(
    ask: Ask, state: State, scoring: Scoring, strategy: str, given: hints.Given | None
) -> Chosen | str:
    planned = plan(ask, state.site, strategy)
    if isinstance(planned, str):
        return planned
    wish, topology = planned.wish, state.site.shape.topology
    if wish is not None and usable(topology, state.free, wish).bit_count() < wish.cpus:
        return _TOO_FEW
    if planned.policy == NO_POLICY:
        return Chosen(planned, hints.ALL, {})
    left = left_for(state, wish, ask.amounts)
    used = state.site.used
    mask = hints.affinity(
        left,
        ask.amounts,
        planned.policy,
        score=lambda mask: _score_of_zones(state, bits(mask), ask, wish, scoring),
        given=given,
        occupied=hints.Occupied(used.single, used.shared) if ask.sole else hints.NOBODY,
    )
    if isinstance(mask, str):
        return mask
    zones = hints.split(left, ask.amounts, mask, {CPU: unit_milli(topology, wish)})
    if isinstance(zones, str):
        return f"Insufficient NUMA {zones}"
    return Chosen(planned, mask, zones)


def grant(chosen: Chosen, state: State, preferred: int = 0) -> Grant | None:
    """With CPUs; None where they cannot be found. ``preferred``: CPUs that are taken first."""
    wish, topology = chosen.plan.wish, state.site.shape.topology
    cpus = 0
    if wish is not None:
        parts = [(topology.all, wish.cpus)]
        if any(CPU in there for there in chosen.zones.values()):
            parts = [
                (topology.nodes[node], there[CPU] // 1000)
                for node, there in chosen.zones.items()
                if CPU in there
            ]
        for near, many in parts:
            found = take(
                topology,
                state.free & near,
                wish._replace(cpus=many),
                state.site.used.held,
                preferred=preferred & near,
            )
            if found is None:
                return None
            cpus |= found
    return Grant(
        cpus=cpus,
        exclusive=wish.exclusive if wish is not None else "",
        zones=tuple(chosen.zones.items()),
        numa_nodes=tuple(bits(chosen.mask)),
        node_policy=state.site.bind if wish is not None else "",
        preferred=wish.policy if wish is not None and not wish.required else "",
    )


def score_of(chosen: Chosen, state: State, ask: Ask, scoring: Scoring) -> int:
    """0 to 100, of a pod that gets NUMA nodes (docs/reference/central.md 5.9)."""
    scored = scoring._replace(numa_most=scoring.most)
    return _score_of_zones(state, list(chosen.zones), ask, chosen.plan.wish, scored)


def counts_in_score(name: str, ask: Amounts) -> bool:
    return name in ask or name in _NATIVE


def _score_of_zones(
    state: State, nodes: list[int], ask: Ask, wish: Wish | None, scoring: Scoring
) -> int:
    score = weights = 0
    for name, weight in scoring.weights.items():
        if not counts_in_score(name, ask.amounts):
            continue
        weights += weight
        total = sum(state.total[n].get(name, 0) for n in nodes if n in state.total)
        left = sum(state.left[n].get(name, 0) for n in nodes if n in state.left)
        need = ask.amounts.get(name, 0)
        if name == CPU and wish is not None:
            need = amplified(need, state.site.ratio)
        used = total - left + need
        if total <= 0:
            continue
        if scoring.numa_most:
            score += weight * (min(used, total) * 100 // total)
        elif used <= total:
            score += weight * ((total - used) * 100 // total)
    return score // weights if weights else 0


def offered(ask: Ask, state: State, strategy: str, most: int) -> int:
    """How many such pods CPUs and NUMA nodes let in, at most ``most``, never fewer than do."""
    planned = plan(ask, state.site, strategy)
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


def _loosest(wish: Wish | None) -> Wish | None:
    """Shares of one CPU, so that what is counted is never too little."""
    return wish._replace(required=False) if wish is not None else None
