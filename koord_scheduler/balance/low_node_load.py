"""LowNodeLoad: moves pods off nodes that use too much (docs/reference/central.md 10.3 to 10.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from koord_scheduler.balance.anomaly import Detectors
from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.load_thresholds import (
    NAME,
    Load,
    LowNodeLoadArgs,
    PoolSettings,
    exceeded,
    loads,
    pools_of,
)
from koord_scheduler.balance.ordering import by_usage
from koord_scheduler.balance.round import Round
from koord_scheduler.balance.selecting import (
    duration_s,
    namespace_allowed,
    nodes_selected,
    pod_selected,
)
from koord_scheduler.balance.world import Amounts, Resident, World
from koord_scheduler.model.cluster.arguments import read_args
from koord_scheduler.model.cluster.nodes import Node


class Classes(NamedTuple):
    """Nodes of a pool by what they are (10.4, 5). A node is in one of them at most."""

    low: list[Load]
    high: list[Load]
    prod_low: list[Load]
    prod_high: list[Load]
    both_low: list[Load]


class _Phase(NamedTuple):
    """``budget``: what the targets may still take; evictions take of it."""

    word: str
    prod: bool
    targets: list[Load]
    budget: dict[str, int]


class _Room:
    """What the targets of a phase may still take of usage: ``left`` has a row for each of them, and
    a column for each of ``names``, so often as there are sides to hold to."""

    def __init__(self, phase: _Phase, names: tuple[str, ...]) -> None:
        self.targets, self.names = phase.targets, names
        self.sides = 2 if phase.prod else 1
        rows = [
            [
                bounds[name] - used.get(name, 0)
                for used, bounds in (_side(each, prod) for prod in (False, True)[: self.sides])
                for name in names
            ]
            for each in phase.targets
        ]
        self.left = np.array(rows, np.int64)


def make(args: Mapping[str, Any]) -> LowNodeLoad:
    return LowNodeLoad(read_args(NAME, LowNodeLoadArgs, args))


class LowNodeLoad:
    """Remembers which nodes were overloaded how often in a row."""

    name = NAME

    def __init__(self, args: LowNodeLoadArgs) -> None:
        self._args = args
        self._pools = pools_of(args)
        kept_s = duration_s(NAME, "detectorCacheTimeout", args.detector_cache_timeout)
        self._nodes, self._prod = Detectors(kept_s), Detectors(kept_s)

    def run(self, round_: Round) -> None:
        if self._args.paused:
            return
        for each in (self._nodes, self._prod):
            each.forget(round_.world.now_s)
        processed: set[str] = set()
        for pool in self._pools:
            nodes = nodes_selected(pool.selector, round_.nodes)
            if pool.selector is not None:
                nodes = [each for each in nodes if each.name not in processed]
            if nodes:
                self._balance(round_, pool, nodes, processed)

    def _balance(
        self, round_: Round, pool: PoolSettings, nodes: Sequence[Node], processed: set[str]
    ) -> None:
        world, now_s = round_.world, round_.world.now_s
        found = loads(world, nodes, pool, self._args.node_metric_expiration_seconds)
        classes = classified(found.values())
        processed.update(each.node.name for each in classes.high)
        high, prod_high = (
            [each for each in over if seen.abnormal(each.node.name, pool.condition, now_s)]
            for over, seen in ((classes.high, self._nodes), (classes.prod_high, self._prod))
        )
        calm = (*classes.low, *classes.prod_low, *classes.both_low)
        if not (high or prod_high) or not calm:
            return
        for each in calm:
            self._nodes.reset(each.node.name)
            self._prod.reset(each.node.name)
        if len(calm) <= self._args.number_of_nodes or len(calm) == len(nodes):
            return
        targets = [*classes.low, *classes.both_low]
        budget = _room(targets)
        self._evict(round_, pool, high, _Phase("node", False, targets, budget))
        prod_room, shared = _room(classes.prod_low, prod=True), _room(classes.both_low, prod=True)
        # Nodes that are low in both ways give what the node phase left of them.
        left = _room(classes.both_low)
        own = {
            name: prod_room.get(name, 0)
            + min(shared.get(name, 0), left.get(name, 0), max(budget.get(name, 0), 0))
            for name in pool.names
        }
        prod_targets = [*classes.prod_low, *classes.both_low]
        self._evict(round_, pool, prod_high, _Phase("prod", True, prod_targets, own))
        for over, seen in ((high, self._nodes), (prod_high, self._prod)):
            for each in over:
                seen.normal(each.node.name, pool.condition, now_s)

    def _evict(self, round_: Round, pool: PoolSettings, sources: list[Load], phase: _Phase) -> None:
        if not phase.targets:
            return
        seen = self._prod if phase.prod else self._nodes
        room = _Room(phase, pool.names)
        for load in sorted(sources, key=lambda each: _weighted(each, phase, pool.weights)):
            if any(left <= 0 for left in phase.budget.values()):
                return
            removable = [
                each
                for each in round_.world.active_on(load.node.name)
                if self._removable(round_, each, phase, room)
            ]
            used, bounds = _side(load, phase.prod)
            over = exceeded(used, bounds)
            excess = {name: used[name] - bounds[name] for name in over}
            weights = {name: pool.weights.get(name, 1.0) for name in over}
            ordered = by_usage(removable, lambda each: _usage(round_.world, each), excess, weights)
            for each in ordered:
                over = exceeded(used, bounds)
                if not over:
                    break
                if any(left <= 0 for left in phase.budget.values()):
                    break
                reason = _reason(phase.word, over, used, bounds, load.capacity)
                if not round_.evict(each, NAME, reason, dry_run=self._args.dry_run):
                    continue
                self._subtract(round_.world, load, each, phase)
            if not exceeded(used, bounds):
                seen.reset(load.node.name)

    def _subtract(self, world: World, load: Load, each: Resident, phase: _Phase) -> None:
        usage = _usage(world, each)
        for side in (load.used, load.prod) if each.prod else (load.used,):
            _take(side, usage)
        _take(phase.budget, usage)

    def _removable(self, round_: Round, each: Resident, phase: _Phase, room: _Room) -> bool:
        args = self._args
        if phase.prod and not each.prod:
            return False
        if not namespace_allowed(args.evictable_namespaces, each.namespace):
            return False
        if not pod_selected(args.pod_selectors, each) or not round_.may_evict(each):
            return False
        return not args.node_fit or self._fits(round_.world, each, room)

    def _fits(self, world: World, each: Resident, room: _Room) -> bool:
        """The first target with room gets the pod's usage at once, so that later pods see less."""
        usage = _usage(world, each)
        if usage is None:
            return False
        asked = np.array([_of(usage, name) for name in room.names], np.int64)
        for at in np.flatnonzero((room.left >= np.tile(asked, room.sides)).all(axis=1)):
            target = room.targets[at].node
            if target.name != each.pod.node and why_not(world, each, target) is None:
                room.left[at] -= np.tile(asked, room.sides)
                return True
        return False


def classified(found: Iterable[Load]) -> Classes:
    classes = Classes([], [], [], [], [])
    for load in found:
        if load.under:
            if load.prod_over:
                classes.prod_high.append(load)
            else:
                (classes.both_low if load.prod_under else classes.low).append(load)
        elif load.over:
            classes.high.append(load)
        elif load.prod_over:
            classes.prod_high.append(load)
        elif load.prod_under:
            classes.prod_low.append(load)
    return classes


def _side(load: Load, prod: bool) -> tuple[dict[str, int], Amounts]:
    return (load.prod, load.prod_high) if prod else (load.used, load.high)


def _room(targets: list[Load], *, prod: bool = False) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in targets:
        used, bounds = _side(each, prod)
        for name, bound in bounds.items():
            found[name] = found.get(name, 0) + bound - used.get(name, 0)
    return found


def _usage(world: World, resident: Resident) -> Amounts | None:
    reported = world.usage.get(resident.pod.node)
    return reported.pods.get(resident.pod.key) if reported is not None else None


def _of(usage: Amounts, resource: str) -> int:
    return 1 if resource == "pods" else usage.get(resource, 0)


def _take(amounts: dict[str, int], usage: Amounts | None) -> None:
    """A pod without a report counts for nothing."""
    if usage is not None:
        for name in amounts:
            amounts[name] -= _of(usage, name)


def _weighted(load: Load, phase: _Phase, weights: Mapping[str, float]) -> tuple[float, str]:
    """Most used first."""
    used, _ = _side(load, phase.prod)
    total, result = 0.0, 0.0
    for name, weight in weights.items():
        has = load.capacity.get(name, 0)
        total += weight
        if has:
            result += weight * (min(used.get(name, 0), has) * 1000 // has)
    return -(result / total) if total else 0.0, load.node.name


def _reason(
    word: str, over: Sequence[str], used: Amounts, bounds: Amounts, capacity: Amounts
) -> str:
    parts = []
    for name in over:
        has = capacity.get(name, 0)
        parts.append(
            f"{word} {name} usage({_percent(used[name], has):.2f}%)"
            f">threshold({_percent(bounds[name], has):.2f}%)"
        )
    return f"{word} is overutilized, {', '.join(parts)}"


def _percent(amount: int, of: int) -> float:
    return amount * 100 / of if of else 0.0
