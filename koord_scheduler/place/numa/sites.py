"""Which nodes are alike in all that decides about CPUs and NUMA nodes.

Each distinct state of a node has a number, so that a class of pods is tried once for all nodes that
are alike, and again only where something changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints
from koord_scheduler.place.numa.accumulate import FULL_PCPUS, LEAST, MOST, SPREAD_BY_PCPUS
from koord_scheduler.place.numa.free import Site, State, state_of, used_by
from koord_scheduler.place.numa.reading import cpu_ratio, reserved_on
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
_MOST_SITES = 65_536
Ratios = NDArray[np.float64]


def site_of(cluster: Cluster, row: int, reservation: str = "") -> Site:
    """``reservation``: as its users find the node, without what its reserve pod holds."""
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
        ratio=cpu_ratio(annotations) if annotations else 1.0,
        used=used_by(
            (claim for claim in claims if not reservation or claim.pod.holds != reservation),
            shape.topology,
        ),
    )


def _bind_policy(label: str, shape: Shape) -> str:
    if label == "FullPCPUsOnly" or shape.full_pcpus_only:
        return FULL_PCPUS
    return SPREAD_BY_PCPUS if label == SPREAD_BY_PCPUS else ""


class Sites:
    """``all[number]`` is the state of a number. ``epoch`` changes when the numbers do. ``ratio``,
    ``bound_milli`` and ``forces``, by number: by how much CPU is amplified, CPUs that pods have for
    themselves, and whether every pod is bound to CPUs."""

    def __init__(self) -> None:
        self.epoch = 0
        self._of: Cluster | None = None
        self._start()

    def _start(self) -> None:
        self.all: list[State] = []
        self.ratio: Ratios = np.ones(64)
        self.bound_milli: Ints = np.zeros(64, np.int64)
        self.forces: Bools = np.zeros(64, np.bool_)
        self._numbers: dict[tuple[object, ...], int] = {}
        self._of_row: Ints = np.zeros(0, np.int64)
        self._version = -1

    def numbers(self, cluster: Cluster) -> Ints:
        """The number of each row, now."""
        if self._of is not cluster or len(self.all) > _MOST_SITES:
            self._of = cluster
            self.epoch += 1
            self._start()
        if len(self._of_row) < len(cluster.nodes):
            self._of_row = np.pad(self._of_row, (0, len(cluster.alive) - len(self._of_row)))
        version = cluster.version
        if version == self._version:
            return self._of_row
        changed = cluster.since(self._version) if self._version >= 0 else None
        for row in (cluster.rows() if changed is None else changed).tolist():
            self._of_row[row] = self._number(site_of(cluster, row))
        self._version = version
        return self._of_row

    def _number(self, site: Site) -> int:
        # Shapes are shared objects, and `all` keeps them: their identity stands for their content.
        key = (id(site.shape), *site[1:])
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(state_of(site))
            if found >= len(self.ratio):
                self.ratio = np.pad(self.ratio, (0, found), constant_values=1.0)
                self.bound_milli = np.pad(self.bound_milli, (0, found))
                self.forces = np.pad(self.forces, (0, found))
            self.ratio[found] = site.ratio
            self.bound_milli[found] = 1000 * site.used.cpus.bit_count()
            self.forces[found] = bool(site.bind)
        return found
