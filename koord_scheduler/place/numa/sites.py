"""What decides about CPUs and NUMA nodes of a node; nodes that are alike have equal ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints
from koord_scheduler.place.grants import NO_LOAN, Loan, without
from koord_scheduler.place.node_states import States
from koord_scheduler.place.numa.accumulate import FULL_PCPUS, LEAST, MOST, SPREAD_BY_PCPUS
from koord_scheduler.place.numa.free import Site, State, state_of, used_by
from koord_scheduler.place.numa.reading import ratios_of, reserved_on
from koord_scheduler.place.numa.topology import Topology
from koord_scheduler.place.numa.types import (
    BEST_EFFORT,
    NUMA,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    Shape,
)
from koordlet.protocol.keys import CPU_BIND_POLICY

NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
_UNKNOWN = Shape(Topology(()))
_BARE = Site(_UNKNOWN)
Ratios = NDArray[np.float64]


def site_of(cluster: Cluster, row: int, loan: Loan = NO_LOAN) -> Site:
    """Return what decides on a row, for a pod with this loan."""
    node = cluster.nodes[row]
    if node is None:
        return _BARE
    numa = cluster.get(NUMA, row)
    shape = numa.shape if numa is not None else _UNKNOWN
    labels, annotations = node.labels, node.annotations
    claims = cluster.claims_on(row).values()
    policy = labels.get(NUMA_TOPOLOGY_POLICY, "")
    strategy = labels.get(NUMA_ALLOCATE_STRATEGY, "")
    return Site(
        shape=shape,
        reserved=reserved_on(annotations) if annotations else 0,
        bind=_bind_policy(labels.get(CPU_BIND_POLICY.name, ""), shape),
        policy=policy if policy in (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE) else shape.policy,
        strategy=strategy if strategy in (LEAST, MOST) else "",
        ratios=ratios_of(annotations) if annotations else (),
        used=used_by(without(claims, loan), shape.topology),
    )


def _bind_policy(label: str, shape: Shape) -> str:
    if label == "FullPCPUsOnly" or shape.full_pcpus_only:
        return FULL_PCPUS
    return SPREAD_BY_PCPUS if label == SPREAD_BY_PCPUS else ""


class Sites(States[State]):
    """``ratio``, ``bound_milli`` and ``forces``, by number: by how much CPU is amplified, CPUs that
    pods have for themselves, and whether every pod is bound to CPUs. ``amplified``: whether CPU of
    any node is."""

    def __init__(self) -> None:
        super().__init__(site_of, self._made)

    def _start(self) -> None:
        super()._start()
        self.ratio: Ratios = np.ones(64)
        self.bound_milli: Ints = np.zeros(64, np.int64)
        self.forces: Bools = np.zeros(64, np.bool_)
        self.amplified = False

    def _made(self, site: Site) -> State:
        number = len(self.all)
        if number >= len(self.ratio):
            self.ratio = np.pad(self.ratio, (0, number), constant_values=1.0)
            self.bound_milli = np.pad(self.bound_milli, (0, number))
            self.forces = np.pad(self.forces, (0, number))
        self.ratio[number] = site.ratio
        self.amplified = self.amplified or site.ratio != 1
        self.bound_milli[number] = 1000 * site.used.cpus.bit_count()
        self.forces[number] = bool(site.bind)
        return state_of(site)
