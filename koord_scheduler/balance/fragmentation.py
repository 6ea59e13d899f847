"""FragmentationAware: evens out how much of each resource a node has left
(docs/reference/central.md 10.14)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.round import Round
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
from koord_scheduler.balance.world import Amounts, Resident
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_unique, read_args
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.selector import LabelSelector

NAME = "FragmentationAware"


class FragmentationArgs(Args, frozen=True):
    paused: bool = False
    dry_run: bool = False
    evictable_namespaces: Namespaces | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    resources: tuple[str, ...] = ("cpu", "memory")
    imbalance_threshold: float = 0.15
    min_improvement_threshold: float = 0.02
    node_fit: bool = True


def make(args: Mapping[str, Any]) -> Fragmentation:
    """Raises ArgumentError."""
    found = read_args(NAME, FragmentationArgs, args)
    check_namespaces(NAME, "evictableNamespaces", found.evictable_namespaces)
    check_selector(NAME, "nodeSelector", found.node_selector)
    check_pod_selectors(NAME, found.pod_selectors)
    check_unique(NAME, "resources", found.resources)
    if len(found.resources) < 2:
        raise ArgumentError(f"{NAME}: resources: needs two at least")
    if found.imbalance_threshold < 0 or found.min_improvement_threshold < 0:
        raise ArgumentError(f"{NAME}: thresholds must be at least 0")
    return Fragmentation(found)


class Fragmentation:
    name = NAME

    def __init__(self, args: FragmentationArgs) -> None:
        self._args = args

    def run(self, round_: Round) -> None:
        if self._args.paused:
            return
        nodes = nodes_selected(self._args.node_selector, round_.nodes)
        for node in nodes:
            self._one(round_, node, nodes)

    def _one(self, round_: Round, node: Node, nodes: Sequence[Node]) -> None:
        args, world = self._args, round_.world
        requested = world.requested.get(node.name, {})
        before = imbalance(requested, node.allocatable, args.resources)
        if before <= args.imbalance_threshold:
            return
        best: tuple[float, float, str, Resident] | None = None
        for each in world.active_on(node.name):
            if not namespace_allowed(args.evictable_namespaces, each.namespace):
                continue
            if not pod_selected(args.pod_selectors, each) or not round_.may_evict(each):
                continue
            left = {
                name: requested.get(name, 0) - each.requests.get(name, 0) for name in args.resources
            }
            after = imbalance(left, node.allocatable, args.resources)
            gain = before - after
            if gain <= args.min_improvement_threshold:
                continue
            if best is not None and (-gain, each.pod.key) >= (-best[0], best[2]):
                continue
            if args.node_fit and not self._fits(round_, each, nodes):
                continue
            best = (gain, after, each.pod.key, each)
        if best is not None and round_.before(best[3]):
            gain, after, _, each = best
            reason = (
                f"fragmentation reduction: stdBefore={before:.4f} stdAfter={after:.4f} "
                f"gain={gain:.4f}"
            )
            round_.evict(each, NAME, reason, dry_run=args.dry_run)

    def _fits(self, round_: Round, each: Resident, nodes: Sequence[Node]) -> bool:
        return any(
            other.name != each.pod.node and why_not(round_.world, each, other) is None
            for other in nodes
        )


def imbalance(requested: Amounts, allocatable: Amounts, resources: Sequence[str]) -> float:
    """Population standard deviation of the shares; resources that the node lacks count not."""
    shares = [
        requested.get(name, 0) / allocatable[name]
        for name in resources
        if allocatable.get(name, 0) > 0
    ]
    if not shares:
        return 0.0
    mean = math.fsum(shares) / len(shares)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in shares) / len(shares))
