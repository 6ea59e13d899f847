"""What is free of a node's CPUs and NUMA nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.place.grants import Loan, granted, lent, sums
from koord_scheduler.place.numa.accumulate import (
    FULL_PCPUS,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    Held,
    Wish,
    usable,
)
from koord_scheduler.place.numa.topology import Topology, bits
from koord_scheduler.place.numa.types import NAME, Amounts, Grant, Shape
from koordlet.protocol.resources import CPU


class Used(NamedTuple):
    """By all pods of a node. ``amounts``: of NUMA nodes, sorted, without CPU of pods that are bound
    to CPUs. ``single``: NUMA nodes with pods that are bound there alone; ``shared``: those on which
    a pod that spans several is bound (docs/reference/central.md 5.4)."""

    cpus: int = 0
    held: Held = Held()
    amounts: tuple[tuple[int, str, int], ...] = ()
    single: int = 0
    shared: int = 0


NOTHING = Used()


class Site(NamedTuple):
    """All that decides about CPUs and NUMA nodes of a node; nodes that are alike have equal ones.

    ``reserved``: CPUs that annotations of the node keep. ``bind``: the bind policy that it
    requires, empty for none; ``policy``: of NUMA. ``ratios``: by how much resources are amplified;
    only those that are."""

    shape: Shape
    reserved: int = 0
    bind: str = ""
    policy: str = ""
    strategy: str = ""
    ratios: tuple[tuple[str, float], ...] = ()
    used: Used = NOTHING

    @property
    def ratio(self) -> float:
        """Return that of CPU."""
        return dict(self.ratios).get(CPU, 1.0)


class State(NamedTuple):
    """``free``: CPUs; ``total`` and ``left``: amounts of NUMA nodes, amplified."""

    site: Site
    free: int
    total: dict[int, dict[str, int]]
    left: dict[int, dict[str, int]]


def used_by(claims: Iterable[Claim], topology: Topology) -> Used:
    """CPUs of a reservation are those of its users."""
    found = granted(claims, NAME, Grant)
    if not found:
        return NOTHING
    cpus = by_core = by_node = single = shared = 0
    for _, grant in found:
        cpus |= grant.cpus
        if grant.exclusive == PCPU_LEVEL:
            by_core |= grant.cpus
        elif grant.exclusive == NUMA_NODE_LEVEL:
            by_node |= grant.cpus
        if grant.cpus:
            nodes = topology.nodes_of(grant.cpus)
            if nodes.bit_count() > 1:
                shared |= nodes
            else:
                single |= nodes
    return Used(
        cpus,
        Held(by_core, by_node),
        tuple(sorted((*key, amount) for key, amount in sums(found, _amounts).items())),
        single & ~shared,
        shared,
    )


def amplified(amount: int, ratio: float) -> int:
    """Return it rounded up, as the reference does."""
    return math.ceil(amount * ratio)


def state_of(site: Site) -> State:
    shape, used, ratio = site.shape, site.used, site.ratio
    topology = shape.topology
    reserved = (shape.reserved | site.reserved) & topology.all
    total: dict[int, dict[str, int]] = {}
    left: dict[int, dict[str, int]] = {}
    for zone in shape.zones:
        there = dict(zone.total)
        near = topology.nodes.get(zone.node, 0)
        if CPU in there:
            kept = 1000 * (near & reserved).bit_count()
            there[CPU] = max(there[CPU] - kept, 0)
        for name, by in site.ratios:
            if name in there:
                there[name] = amplified(there[name], by)
        total[zone.node] = there
        left[zone.node] = there = dict(there)
        if CPU in there:
            there[CPU] -= amplified(1000 * (near & used.cpus).bit_count(), ratio)
    for node, name, amount in used.amounts:
        if name in left.get(node, ()):
            left[node][name] -= amount
    for there in left.values():
        for name, amount in there.items():
            there[name] = max(amount, 0)
    return State(site, topology.all & ~used.cpus & ~reserved, total, left)


def unit_milli(topology: Topology, wish: Wish | None) -> int:
    """The smallest share of CPU: one CPU for a pod that is bound, a whole core where that is
    required."""
    if wish is None:
        return 1
    if wish.required and wish.policy == FULL_PCPUS:
        return 1000 * topology.cpus_per_core
    return 1000


def left_for(state: State, wish: Wish | None, amounts: Amounts) -> dict[int, dict[str, int]]:
    """What a pod finds on each NUMA node of the resources it asks for and NUMA nodes have.
    ``wish``: of a pod that is bound to CPUs; CPU is not amplified then."""
    found = {
        node: {name: there[name] for name in amounts if name in there}
        for node, there in state.left.items()
    }
    if wish is None:
        return found
    topology = state.site.shape.topology
    cpus = usable(topology, state.free, wish)
    unit = unit_milli(topology, wish)
    for node, there in found.items():
        milli = 1000 * (cpus & topology.nodes.get(node, 0)).bit_count()
        if CPU in there:
            # Rounding of an amplified amount must not cost a CPU that is there.
            milli = min(milli, -int(-there[CPU] // state.site.ratio))
        there[CPU] = milli // unit * unit
    return found


def cpus_lent(claims: Iterable[Claim], loan: Loan) -> int:
    """Return the CPUs of those that lend, taken or not."""
    found = 0
    for grant in lent(claims, NAME, Grant, loan)[0]:
        found |= grant.cpus
    return found


def kept_to(state: State, claims: Iterable[Claim], loan: Loan) -> State:
    """Return the state for a pod that gets of the restricted resources what is lent alone. Who
    lends no CPUs and no shares of NUMA nodes restricts none."""
    give, take = lent(claims, NAME, Grant, loan)
    cpus = 0
    for grant in give:
        cpus |= grant.cpus
    if cpus and CPU in loan.restricted:
        state = state._replace(free=state.free & cpus)
    shares: dict[tuple[int, str], int] = {}
    for sign, grants in ((1, give), (-1, take)):
        for grant in grants:
            for node, there in grant.zones:
                for name, amount in there.items():
                    shares[node, name] = shares.get((node, name), 0) + sign * amount
    names = {name for _, name in shares} & loan.restricted
    if not names:
        return state
    left = {
        node: {
            name: max(min(amount, shares.get((node, name), 0)), 0) if name in names else amount
            for name, amount in there.items()
        }
        for node, there in state.left.items()
    }
    return state._replace(left=left)


def by_node(topology: Topology, cpus: int) -> dict[int, list[int]]:
    return {node: bits(mask & cpus) for node, mask in topology.nodes.items() if mask & cpus}


def _amounts(grant: Grant) -> Iterable[tuple[tuple[int, str], int]]:
    return (
        ((node, name), amount)
        for node, there in grant.zones
        for name, amount in there.items()
        if not (name == CPU and grant.cpus)
    )
