"""NodeResourcesFit: what a pod asks for must be left on the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, Codes, Normalize, Plugin, Verdict, reason
from koordlet.protocol.resources import CPU, GPU_SHARED, MEMORY

NAME = "NodeResourcesFit"
Credit = Callable[[Cluster, PodClass, Rows], Ints | None]
"""What such a pod finds beside what is free: of each row and column, or None for nothing."""
NOT_NOTHING = {CPU: 100, MEMORY: 200 << 20}
"""What a pod that asks for nothing counts with in scores, as in Kubernetes."""
_FREE_OF_CHARGE = frozenset((GPU_SHARED,))
"""It says how many GPUs share a request. Where nodes do not offer it, device sharing alone looks at
it."""


class ResourceWeight(msgspec.Struct, frozen=True):
    """``weight``: 0 where the file has none, which only plugins of Kubernetes take for 1."""

    name: str
    weight: int = 0


def evenly(*names: str) -> tuple[ResourceWeight, ...]:
    return tuple(ResourceWeight(name, 1) for name in names)


class Point(msgspec.Struct, frozen=True):
    """``utilization`` in percent, ``score`` from 0 to 10."""

    utilization: int
    score: int


class Ratio(msgspec.Struct, frozen=True):
    shape: tuple[Point, ...] = ()


class Strategy(msgspec.Struct, frozen=True, rename="camel"):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = evenly(CPU, MEMORY)
    requested_to_capacity_ratio: Ratio = Ratio()


class FitArgs(Args, frozen=True, kw_only=True):
    scoring_strategy: Strategy = Strategy()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()


class Fit:
    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: FitArgs) -> None:
        self.args = args
        self._credit: Credit | None = None

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        """Reservations say what a pod that may use them finds beside what is free."""
        self._credit = getattr(plugins.get("Reservation"), "credit", None)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        need = cluster.vector(pod)
        allocatable = cluster.allocatable.take(rows, 0)
        requested = cluster.requested.take(rows, 0)
        free = allocatable - requested
        if self._credit is not None:
            credit = self._credit(cluster, pod, rows)
            if credit is not None:
                free += credit
        why: Codes = np.zeros(len(rows), np.int16)
        for name in pod.requests:
            if name in cluster.columns.index or name in _FREE_OF_CHARGE:
                continue
            if not self._ignored(name):
                why[:] = reason(NAME, f"Insufficient {name}", unresolvable=True)
                return Verdict(why, self._score(cluster, pod, need, allocatable, requested))
        for column in need.nonzero()[0].tolist():
            asked = int(need[column])
            short = free[:, column] < asked
            if not np.count_nonzero(short):
                continue
            name = cluster.columns.names[column]
            if self._ignored(name):
                continue
            if name in _FREE_OF_CHARGE:
                short &= allocatable[:, column] > 0
            text = "Too many pods" if name == "pods" else f"Insufficient {name}"
            never = allocatable[:, column] < asked
            new = short & (why == FITS)
            why[new & never] = reason(NAME, text, unresolvable=True)
            why[new & ~never] = reason(NAME, text)
        return Verdict(why, self._score(cluster, pod, need, allocatable, requested))

    def _ignored(self, name: str) -> bool:
        group, slash, _ = name.partition("/")
        if name in self.args.ignored_resources:
            return True
        return bool(slash) and group in self.args.ignored_resource_groups

    def _score(
        self, cluster: Cluster, pod: PodClass, need: Ints, allocatable: Ints, requested: Ints
    ) -> Ints:
        strategy = self.args.scoring_strategy
        total = np.zeros(len(allocatable), np.int64)
        weights: Ints | int = 0
        for each in strategy.resources:
            column = cluster.columns.index.get(each.name)
            if column is None:
                continue
            own = int(need[column]) or NOT_NOTHING.get(each.name, 0)
            if not own:
                continue
            offered = allocatable[:, column]
            score = _scored(strategy, requested[:, column] + own, offered)
            if np.count_nonzero(offered) == len(offered):
                total += score * each.weight
                weights = weights + each.weight
            else:
                there = offered > 0
                total += np.where(there, score, 0) * each.weight
                weights = weights + there * each.weight
        return total // np.maximum(weights, 1)


def as_in_kubernetes(resources: Iterable[ResourceWeight]) -> tuple[ResourceWeight, ...]:
    """Return them with weight 1 where the file has 0 or none."""
    return tuple(ResourceWeight(each.name, each.weight or 1) for each in resources)


def check_weights(plugin: str, where: str, resources: Iterable[ResourceWeight]) -> None:
    """Raises ArgumentError."""
    for i, each in enumerate(resources):
        check_range(plugin, f"{where}[{i}].weight ({each.name})", each.weight, 1, 100)


def least_used(used: Ints, offered: Ints) -> Ints:
    """0 to 100: how much of what nodes offer is left (docs/reference/central.md 0.1)."""
    found: Ints = np.maximum(offered - used, 0) * 100 // np.maximum(offered, 1)
    return found


def most_used(used: Ints, offered: Ints) -> Ints:
    """0 to 100: how much of what nodes offer is used."""
    return np.minimum(used, offered) * 100 // np.maximum(offered, 1)


def _scored(strategy: Strategy, used: Ints, offered: Ints) -> Ints:
    if strategy.type == "LeastAllocated":
        return least_used(used, offered)
    if strategy.type == "MostAllocated":
        return most_used(used, offered)
    shape = strategy.requested_to_capacity_ratio.shape
    percent = np.minimum(used * 100 // np.maximum(offered, 1), 100)
    found: Ints = np.interp(
        percent, [p.utilization for p in shape], [p.score * 10 for p in shape]
    ).astype(np.int64)
    return found


def make(args: Mapping[str, Any]) -> Fit:
    found = read_args(NAME, FitArgs, args)
    strategy = found.scoring_strategy
    weights = as_in_kubernetes(strategy.resources) or evenly(CPU, MEMORY)
    check_weights(NAME, "scoringStrategy.resources", weights)
    if strategy.type == "RequestedToCapacityRatio":
        points = [p.utilization for p in strategy.requested_to_capacity_ratio.shape]
        if not points or points != sorted(set(points)):
            raise ArgumentError(
                f"{NAME}: scoringStrategy.requestedToCapacityRatio.shape must have points with "
                "growing utilization"
            )
        for i, point in enumerate(strategy.requested_to_capacity_ratio.shape):
            where = f"scoringStrategy.requestedToCapacityRatio.shape[{i}]"
            check_range(NAME, f"{where}.utilization", point.utilization, 0, 100)
            check_range(NAME, f"{where}.score", point.score, 0, 10)
    strategy = msgspec.structs.replace(strategy, resources=weights)
    return Fit(msgspec.structs.replace(found, scoring_strategy=strategy))
