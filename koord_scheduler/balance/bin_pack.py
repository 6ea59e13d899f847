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
    namespace_allowed,
    nodes_selected,
    pod_selected,
)
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.selector import LabelSelector

NAME = "ScaleDownBinPack"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MOST = 2**31 - 1


class BinPackArgs(Args, frozen=True):
    """``resource_weights``: 1 where a resource has none. ``max_pods_to_evict``: 0 for no limit."""

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
    if not found.resources or found.max_pods_to_evict < 0:
        raise ArgumentError(f"{NAME}: needs resources, and maxPodsToEvict of at least 0")
    return BinPack(found)


class BinPack:
    name = NAME

    def __init__(self, args: BinPackArgs) -> None:
        self._args = args
        self._weights = {name: args.resource_weights.get(name, 1.0) for name in args.resources}

    def run(self, round_: Round) -> None:
        if self._args.paused:
            return
        ranked = self._ranked(round_)
        if self._args.strategy == "CalculateOnly":
            self._mark(round_, ranked)
            return
        evicted = 0
        for each in ranked:
            if self._args.max_pods_to_evict and evicted >= self._args.max_pods_to_evict:
                return
            if round_.may_evict(each) and round_.evict(
                each, NAME, "scale-down bin packing", dry_run=self._args.dry_run
            ):
                evicted += 1

    def _mark(self, round_: Round, ranked: list[Resident]) -> None:
        rank = 0
        for each in ranked:
            cost = _MOST
            if round_.may_evict(each):
                cost, rank = rank, rank + 1
            if each.details.deletion_cost != cost and not self._args.dry_run:
                mark = Mark(pod=each.pod.key, annotations={DELETION_COST: str(cost)})
                round_.mark(mark)

    def _selected(self, each: Resident) -> bool:
        return namespace_allowed(self._args.evictable_namespaces, each.namespace) and pod_selected(
            self._args.pod_selectors, each
        )

    def _ranked(self, round_: Round) -> list[Resident]:
        """Nodes on which little else stays come first, there the large pods."""
        nodes: list[tuple[float, int, str, list[Resident]]] = []
        for node in nodes_selected(self._args.node_selector, round_.nodes):
            residents = round_.world.active_on(node.name)
            targets = [each for each in residents if self._selected(each)]
            if not targets:
                continue
            others = [each for each in residents if not self._selected(each)]
            asked = self._size(targets, node)
            score = self._size(others, node) / asked if asked else math.inf
            if not asked and not others:
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
        return [each for *_, targets in nodes for each in targets]

    def _size(self, residents: list[Resident], node: Node) -> float:
        """Weighted shares of the node that they ask for."""
        total = 0.0
        for name, weight in self._weights.items():
            has = node.allocatable.get(name, 0)
            if has > 0:
                total += weight * sum(each.requests.get(name, 0) for each in residents) / has
        return total
