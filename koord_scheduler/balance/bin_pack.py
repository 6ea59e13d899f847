"""ScaleDownBinPack: says which pods a scale-down should remove, so that nodes become empty
(docs/reference/central.md 10.14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from koord_scheduler.balance.round import Mark, Round
from koord_scheduler.balance.selecting import (
    Namespaces,
    PodSelector,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    namespace_allowed,
    nodes_selected,
    pod_selected,
)
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.selector import LabelSelector

NAME = "ScaleDownBinPack"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MOST = 2**31 - 1


class BinPackArgs(Args, frozen=True):
    """``resource_weights``: 1 for those of ``resources`` that have none. ``max_pods_to_evict`` is
    asked for by EvictDirectly."""

    paused: bool = False
    dry_run: bool = False
    strategy: Literal["CalculateOnly", "EvictDirectly"] = "CalculateOnly"
    max_pods_to_evict: int = 0
    resources: tuple[str, ...] = ("cpu", "memory")
    resource_weights: Mapping[str, float] = {}
    evictable_namespaces: Namespaces | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[PodSelector, ...] = ()


def make(args: Mapping[str, Any]) -> BinPack:
    """Raises ArgumentError."""
    found = read_args(NAME, BinPackArgs, args)
    check_namespaces(NAME, "evictableNamespaces", found.evictable_namespaces)
    check_selector(NAME, "nodeSelector", found.node_selector)
    check_pod_selectors(NAME, found.pod_selectors)
    if found.strategy == "EvictDirectly":
        where = f"maxPodsToEvict (strategy {found.strategy})"
        check_range(NAME, where, found.max_pods_to_evict, 1, None)
    for name, weight in found.resource_weights.items():
        if not (weight > 0 and math.isfinite(weight)):
            raise ArgumentError(f"{NAME}: resourceWeights.{name} is {weight}; it must be above 0")
    return BinPack(found)


class BinPack:
    name = NAME

    def __init__(self, args: BinPackArgs) -> None:
        self._args = args
        self._weights = {**dict.fromkeys(args.resources, 1.0), **args.resource_weights}

    def run(self, round_: Round) -> None:
        if self._args.paused:
            return
        ranked, stay = self._ranked(round_)
        if self._args.strategy == "CalculateOnly":
            self._mark(round_, ranked, stay)
            return
        evicted = 0
        for each in ranked:
            if evicted >= self._args.max_pods_to_evict:
                return
            if round_.evict(each, NAME, "scale-down bin packing", dry_run=self._args.dry_run):
                evicted += 1

    def _mark(self, round_: Round, ranked: list[Resident], stay: list[Resident]) -> None:
        for each, cost in (*zip(ranked, range(_MOST), strict=False), *((s, _MOST) for s in stay)):
            if each.details.deletion_cost != cost and not self._args.dry_run:
                mark = Mark(pod=each.pod.key, annotations={DELETION_COST: str(cost)})
                round_.mark(mark)

    def _selected(self, each: Resident) -> bool:
        return namespace_allowed(self._args.evictable_namespaces, each.namespace) and pod_selected(
            self._args.pod_selectors, each
        )

    def _ranked(self, round_: Round) -> tuple[list[Resident], list[Resident]]:
        """Return the pods that may go: nodes on which little else stays come first, there the
        large pods. Selected pods that may not go stay; the second list has them."""
        stay: list[Resident] = []
        nodes: list[tuple[float, int, str, list[Resident]]] = []
        for node in nodes_selected(self._args.node_selector, round_.nodes):
            residents = round_.world.active_on(node.name)
            selected = [each for each in residents if self._selected(each)]
            targets = [each for each in selected if round_.may_evict(each)]
            going = {each.pod.key for each in targets}
            stay += [each for each in selected if each.pod.key not in going]
            if not targets:
                continue
            others = [each for each in residents if each.pod.key not in going]
            asked = self._size(targets, node)
            score = self._size(others, node) / asked if asked else math.inf
            if not asked and not self._size(others, node):
                score = 0.0
            targets.sort(
                key=lambda each: (
                    -self._size([each], node),
                    -each.pod.created_s,
                    each.namespace,
                    each.name,
                )
            )
            nodes.append((score, len(targets), node.name, targets))
        nodes.sort(key=lambda each: each[:3])
        return [each for *_, targets in nodes for each in targets], stay

    def _size(self, residents: list[Resident], node: Node) -> float:
        """Weighted shares of the node that they ask for."""
        total = 0.0
        for name, weight in self._weights.items():
            has = node.allocatable.get(name, 0)
            if has > 0:
                total += weight * sum(each.requests.get(name, 0) for each in residents) / has
        return total
