"""NodeResourcesFitPlus and ScarceResourceAvoidance: scores by resource
(docs/reference/central.md 8.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import PODS, Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict
from koord_scheduler.place.fit import least_used, most_used

PLUS = "NodeResourcesFitPlus"
SCARCE = "ScarceResourceAvoidance"


class Scored(msgspec.Struct, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    weight: int = 1


class PlusArgs(Args, frozen=True, kw_only=True):
    resources: dict[str, Scored] = msgspec.field(default_factory=dict)


class ScarceArgs(Args, frozen=True, kw_only=True):
    resources: tuple[str, ...] = ()


class FitPlus:
    """Each resource that a pod asks for has its own strategy; a pod that asks for none of them
    scores 100."""

    name = PLUS
    local = True
    normalize = Normalize.NO

    def __init__(self, args: PlusArgs) -> None:
        self._resources = args.resources

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(self._resources)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        total = np.zeros(len(rows), np.int64)
        weights = 0
        for name, scored in self._resources.items():
            column = cluster.columns.index.get(name)
            own = pod.requests.get(name, 0)
            if column is None or not own:
                continue
            offered = cluster.allocatable[rows, column]
            used = cluster.requested[rows, column] + own
            least = scored.type == "LeastAllocated"
            score = least_used(used, offered) if least else most_used(used, offered)
            total += score * scored.weight
            weights += scored.weight
        score = total // weights if weights else np.full(len(rows), 100, np.int64)
        return Verdict(np.zeros(len(rows), np.int16), score)


class Scarce:
    """Nodes with resources that the pod does not ask for are kept for those that do."""

    name = SCARCE
    local = True
    normalize = Normalize.NO

    def __init__(self, args: ScarceArgs) -> None:
        self._names = args.resources

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(self._names)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        unasked = cluster.vector(pod) == 0
        unasked[PODS] = False
        there = (cluster.allocatable[rows] > 0) & unasked
        scarce = np.zeros(len(unasked), np.bool_)
        for name in self._names:
            column = cluster.columns.index.get(name)
            if column is not None:
                scarce[column] = True
        different = there.sum(axis=1)
        rare = (there & scarce).sum(axis=1)
        score = np.where(
            (different == 0) | (rare == 0),
            100,
            (different - rare) * 100 // np.maximum(different, 1),
        )
        return Verdict(np.zeros(len(rows), np.int16), score)


def make_plus(args: Mapping[str, Any]) -> FitPlus:
    found = read_args(PLUS, PlusArgs, args)
    for name, scored in found.resources.items():
        if not 1 <= scored.weight <= 100:
            raise ArgumentError(f"{PLUS}: resources.{name}.weight must be 1 to 100")
    return FitPlus(found)


def make_scarce(args: Mapping[str, Any]) -> Scarce:
    return Scarce(read_args(SCARCE, ScarceArgs, args))
