"""LowNodeUtilization and HighNodeUtilization: by what pods request, not by what they use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.round import Round
from koord_scheduler.balance.selecting import Namespaces, namespace_allowed
from koord_scheduler.balance.upstream.common import Simple, made, rank
from koord_scheduler.balance.world import Amounts, Resident
from koord_scheduler.model.cluster.arguments import Args, ArgumentError
from koord_scheduler.model.cluster.nodes import Node

LOW, HIGH = "LowNodeUtilization", "HighNodeUtilization"
_BASIC = ("cpu", "memory", "pods")


class HighArgs(Args, frozen=True):
    """Percent of allocatable."""

    thresholds: Mapping[str, float] = {}
    number_of_nodes: int = 0
    evictable_namespaces: Namespaces | None = None


class LowArgs(HighArgs, frozen=True):
    use_deviation_thresholds: bool = False
    target_thresholds: Mapping[str, float] = {}


def make_low(args: Mapping[str, Any]) -> Simple[LowArgs]:
    plugin = made(LOW, LowArgs, args, _low)
    low, target = plugin.args.thresholds, plugin.args.target_thresholds
    _check(LOW, "thresholds", low)
    _check(LOW, "targetThresholds", target)
    if low.keys() != target.keys():
        raise ArgumentError(f"{LOW}: thresholds and targetThresholds must name the same resources")
    if not plugin.args.use_deviation_thresholds:
        for name in sorted(low):
            if low[name] > target[name]:
                raise ArgumentError(f"{LOW}: thresholds of {name} exceed targetThresholds")
    return plugin


def make_high(args: Mapping[str, Any]) -> Simple[HighArgs]:
    plugin = made(HIGH, HighArgs, args, _high)
    _check(HIGH, "thresholds", plugin.args.thresholds)
    return plugin


def _check(plugin: str, where: str, percents: Mapping[str, float]) -> None:
    if not percents:
        raise ArgumentError(f"{plugin}: {where}: names no resource")
    if not all(0 <= each <= 100 for each in percents.values()):
        raise ArgumentError(f"{plugin}: {where}: must be 0 to 100")


def _low(args: LowArgs, round_: Round) -> None:
    deviation = args.use_deviation_thresholds
    open_ = 0.0 if deviation else 100.0
    names = tuple(dict.fromkeys((*_BASIC, *args.thresholds)))
    low = {name: args.thresholds.get(name, open_) for name in names}
    target = {name: args.target_thresholds.get(name, open_) for name in names}
    used = _used(round_, names)
    mean = {
        name: sum(_percent(used[n.name], n.allocatable, name) for n in round_.nodes)
        / max(len(round_.nodes), 1)
        for name in names
    }

    def bound(node: Node, name: str, percents: Mapping[str, float], sign: int) -> int:
        percent = percents[name]
        if deviation:
            # 0 stands for no bound.
            percent = min(max(mean[name] + sign * percent, 0.0), 100.0) if percent else 100.0
        return int(percent * 0.01 * node.allocatable.get(name, 0))

    sources, targets = [], []
    bounds: dict[str, dict[str, int]] = {}
    for node in round_.nodes:
        usage = used[node.name]
        bounds[node.name] = {name: bound(node, name, target, 1) for name in names}
        if not node.unschedulable and all(
            usage[name] <= bound(node, name, low, -1) for name in names
        ):
            targets.append(node)
        elif any(usage[name] > bounds[node.name][name] for name in names):
            sources.append(node)
    if not sources or len(targets) <= args.number_of_nodes or len(targets) == len(round_.nodes):
        return
    room = {
        name: sum(bounds[each.name][name] - used[each.name][name] for each in targets)
        for name in names
    }
    sources.sort(key=lambda each: (-_sum(used[each.name], each, names), each.name))
    for node in sources:
        usage, most = used[node.name], bounds[node.name]
        for each in _candidates(round_, args, node):
            over = [name for name in names if usage[name] > most[name]]
            if not over or any(left <= 0 for left in room.values()):
                break
            if not any(why_not(round_.world, each, other) is None for other in targets):
                continue
            if round_.evict(each, LOW, f"requests exceed the target of {', '.join(over)}"):
                _move(each, usage, room)


def _high(args: HighArgs, round_: Round) -> None:
    names = tuple(dict.fromkeys((*_BASIC, *args.thresholds)))
    low = {name: args.thresholds.get(name, 100.0) for name in names}
    used = _used(round_, names)
    sources, targets = [], []
    for node in round_.nodes:
        under = all(
            used[node.name][name] <= int(low[name] * 0.01 * node.allocatable.get(name, 0))
            for name in names
        )
        if under:
            sources.append(node)
        elif not node.unschedulable:
            targets.append(node)
    if len(sources) <= args.number_of_nodes or not targets:
        return
    room = {
        name: sum(each.allocatable.get(name, 0) - used[each.name][name] for each in targets)
        for name in names
    }
    sources.sort(key=lambda each: (_sum(used[each.name], each, names), each.name))
    for node in sources:
        for each in _candidates(round_, args, node):
            if any(left <= 0 for name, left in room.items() if name in _BASIC):
                return
            if not any(why_not(round_.world, each, other) is None for other in targets):
                continue
            if round_.evict(each, HIGH, "the node is used little and can become empty"):
                _move(each, used[node.name], room)


def _used(round_: Round, names: Sequence[str]) -> dict[str, dict[str, int]]:
    requested = round_.world.requested
    return {
        node.name: {name: requested.get(node.name, {}).get(name, 0) for name in names}
        for node in round_.nodes
    }


def _candidates(round_: Round, args: HighArgs, node: Node) -> list[Resident]:
    found = (
        each
        for each in round_.world.active_on(node.name)
        if namespace_allowed(args.evictable_namespaces, each.namespace) and round_.may_evict(each)
    )
    return sorted(found, key=rank)


def _move(each: Resident, usage: dict[str, int], room: dict[str, int]) -> None:
    for name in usage:
        amount = 1 if name == "pods" else each.requests.get(name, 0)
        usage[name] -= amount
        room[name] -= amount


def _percent(used: Amounts, allocatable: Amounts, name: str) -> float:
    has = allocatable.get(name, 0)
    return used[name] * 100 / has if has else 0.0


def _sum(used: Amounts, node: Node, names: Iterable[str]) -> float:
    return sum(_percent(used, node.allocatable, name) for name in names)
