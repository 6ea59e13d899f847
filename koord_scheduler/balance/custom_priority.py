"""CustomPriority: empties expensive nodes onto cheaper ones (docs/reference/central.md 10.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from koord_scheduler.balance.packing import Packing, by_request
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
from koordlet.protocol.selector import LabelSelector, is_subdomain

NAME = "CustomPriority"
_MISSES = 5
"""So many pods in a row that fit nowhere end the attempt at a node."""


class Level(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The thresholds (percent by resource) are checked and used for nothing, as in the
    reference."""

    name: str
    node_selector: LabelSelector | None = None
    keep_threshold: Mapping[str, float] | None = None
    reject_threshold: Mapping[str, float] | None = None


class CustomPriorityArgs(Args, frozen=True):
    """``eviction_order``: from the most expensive level to the cheapest."""

    paused: bool = False
    dry_run: bool = False
    evictable_namespaces: Namespaces | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    node_fit: bool = True
    eviction_order: tuple[Level, ...] = ()
    mode: Literal["BestEffort", "DrainNode"] = "BestEffort"
    auto_cordon: bool = False


def make(args: Mapping[str, Any]) -> CustomPriority:
    """Raises ArgumentError."""
    found = read_args(NAME, CustomPriorityArgs, args)
    check_namespaces(NAME, "evictableNamespaces", found.evictable_namespaces)
    check_selector(NAME, "nodeSelector", found.node_selector)
    if len(found.eviction_order) < 2:
        raise ArgumentError(f"{NAME}: evictionOrder: needs two levels at least")
    names = [each.name for each in found.eviction_order]
    if len(set(names)) < len(names) or not all(names):
        raise ArgumentError(f"{NAME}: evictionOrder: each level needs a name of its own")
    check_pod_selectors(NAME, found.pod_selectors)
    for i, selector in enumerate(found.pod_selectors):
        _check_name(f"podSelectors[{i}].name", selector.name)
    for i, each in enumerate(found.eviction_order):
        where = f"evictionOrder[{i}]"
        _check_name(f"{where}.name", each.name)
        if each.node_selector is None:
            raise ArgumentError(f"{NAME}: {where}.nodeSelector is missing (level {each.name})")
        check_selector(NAME, f"{where}.nodeSelector", each.node_selector)
        for words, percents in (
            ("keepThreshold", each.keep_threshold),
            ("rejectThreshold", each.reject_threshold),
        ):
            for resource, percent in (percents or {}).items():
                check_range(NAME, f"{where}.{words}.{resource}", percent, 0, 100)
    return CustomPriority(found)


def _check_name(where: str, name: str) -> None:
    if not is_subdomain(name):
        raise ArgumentError(f"{NAME}: {where}: {name[:64]!r} is no DNS name")


class CustomPriority:
    name = NAME

    def __init__(self, args: CustomPriorityArgs) -> None:
        self._args = args

    def run(self, round_: Round) -> None:
        if self._args.paused:
            return
        levels = self._levels(round_)
        for number, level in enumerate(levels[:-1]):
            targets = [node for later in levels[number + 1 :] for node in later]
            if not targets:
                continue
            packing = Packing(round_.world, targets)
            for node in level:
                reason = (
                    f"node is in level {self._args.eviction_order[number].name}, "
                    "which is emptied before the later ones"
                )
                if self._args.mode == "DrainNode":
                    self._drain(round_, node, packing, reason)
                else:
                    self._best_effort(round_, node, packing, reason)

    def _levels(self, round_: Round) -> list[list[Node]]:
        """A node joins the first level that selects it."""
        left = nodes_selected(self._args.node_selector, round_.nodes)
        levels = []
        for each in self._args.eviction_order:
            mine = nodes_selected(each.node_selector, left)
            names = {node.name for node in mine}
            left = [node for node in left if node.name not in names]
            levels.append(mine)
        return levels

    def _candidates(self, round_: Round, node: Node) -> list[Resident]:
        args = self._args
        found = [
            each
            for each in round_.world.active_on(node.name)
            if namespace_allowed(args.evictable_namespaces, each.namespace)
            and pod_selected(args.pod_selectors, each)
            and round_.may_evict(each)
        ]
        return sorted(found, key=by_request)

    def _best_effort(self, round_: Round, node: Node, packing: Packing, reason: str) -> None:
        misses = 0
        for each in self._candidates(round_, node):
            target = packing.place(each) if self._args.node_fit else ""
            if target is None:
                misses += 1
                if misses >= _MISSES:
                    return
                continue
            misses = 0
            if not self._evict(round_, each, reason) and target:
                packing.give_back(each, target)

    def _drain(self, round_: Round, node: Node, packing: Packing, reason: str) -> None:
        candidates = self._candidates(round_, node)
        if not candidates or not packing.place_all(candidates):
            return
        cordon = self._args.auto_cordon and not self._args.dry_run and not node.unschedulable
        for each in candidates:
            if not self._evict(round_, each, reason):
                # A node that is not emptied keeps taking pods.
                return
        if cordon:
            round_.mark(Mark(node=node.name))

    def _evict(self, round_: Round, each: Resident, reason: str) -> bool:
        return round_.evict(each, NAME, reason, dry_run=self._args.dry_run)
