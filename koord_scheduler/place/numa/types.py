"""What is known of a node's NUMA nodes, and what pods were given of them.

CPU is in milli-cores, everything else in whole units. Sets of CPUs and of NUMA nodes are integers:
bit n is number n.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.model.cluster.nodes import Slot
from koord_scheduler.place.numa.topology import Topology

NAME = "NodeNUMAResource"
NO_POLICY, BEST_EFFORT, RESTRICTED = "", "BestEffort", "Restricted"
SINGLE_NUMA_NODE = "SingleNUMANode"
Amounts = Mapping[str, int]


class Zone(NamedTuple):
    """A NUMA node: its allocatable resources, sorted by name."""

    node: int
    total: tuple[tuple[str, int], ...]


class Shape(NamedTuple):
    """What a NodeResourceTopology tells, the same object for nodes that are alike.

    ``reserved``: CPUs of kubelet and of pods that kubelet manages. ``policy``: of kubelet's
    topology manager. ``full_pcpus_only``: kubelet gives whole cores alone."""

    topology: Topology
    reserved: int = 0
    zones: tuple[Zone, ...] = ()
    policy: str = NO_POLICY
    full_pcpus_only: bool = False


class NodeNuma(msgspec.Struct, frozen=True):
    """Of one node."""

    shape: Shape


NUMA: Slot[NodeNuma] = Slot("numa")


class Grant(msgspec.Struct, frozen=True):
    """``cpus``: 0 where the pod is not bound to CPUs. ``exclusive``: PCPULevel, NUMANodeLevel or
    empty. ``zones``: what it takes of each NUMA node. ``numa_nodes``: ids of those that it must
    stay on, empty where all serve. ``node_policy``: the bind policy that the node required;
    ``preferred``: the one that was used where the pod named none."""

    cpus: int = 0
    exclusive: str = ""
    zones: tuple[tuple[int, Amounts], ...] = ()
    numa_nodes: tuple[int, ...] = ()
    node_policy: str = ""
    preferred: str = ""
