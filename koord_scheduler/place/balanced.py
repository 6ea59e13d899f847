"""NodeResourcesBalancedAllocation: CPU and memory of a node should be used alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.arguments import Args, check_range, check_unique, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict
from koord_scheduler.place.fit import ResourceWeight, as_in_kubernetes, evenly
from koordlet.protocol.resources import CPU, MEMORY

NAME = "NodeResourcesBalancedAllocation"
Floats = NDArray[np.float64]


class BalancedArgs(Args, frozen=True, kw_only=True):
    """Weights must be 1, as in Kubernetes."""

    resources: tuple[ResourceWeight, ...] = evenly(CPU, MEMORY)


class Balanced:
    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: BalancedArgs) -> None:
        self._names = tuple(each.name for each in args.resources)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return any(name in pod.requests for name in self._names)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        index = cluster.columns.index
        columns = [index[name] for name in self._names if name in index]
        need = cluster.vector(pod)
        parts = [_part(cluster, rows, column, int(need[column])) for column in columns]
        score = ((1.0 - np.std(parts, axis=0)) * 100).astype(np.int64)
        return Verdict(np.zeros(len(rows), np.int16), score)


def _part(cluster: Cluster, rows: Rows, column: int, own: int) -> Floats:
    """How much of a resource is used, up to 1."""
    offered, used = cluster.allocatable[rows, column], cluster.requested[rows, column]
    found: Floats = np.minimum((used + own) / np.maximum(offered, 1), 1.0)
    return found


def make(args: Mapping[str, Any]) -> Balanced:
    """Raises ArgumentError."""
    found = read_args(NAME, BalancedArgs, args)
    for i, each in enumerate(as_in_kubernetes(found.resources)):
        check_range(NAME, f"resources[{i}].weight ({each.name})", each.weight, 1, 1)
    check_unique(NAME, "resources", [each.name for each in found.resources])
    return Balanced(found)
