"""Where a pod would go again if it were evicted now, in the words of the default profile: fit,
usage thresholds, least requested and least used. The scheduler's own engine may stand in for it."""

from __future__ import annotations

from collections.abc import Callable

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.world import NodeUsage, Resident, World
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Pod

_NAMES = ("cpu", "memory")
_USAGE_THRESHOLDS = {"cpu": 65.0, "memory": 95.0}
"""Of LoadAwareScheduling (spec/central.md 2.1)."""


def simulation(world: World) -> Callable[[Pod], str | None]:
    """A victim -> its next node, or None. As of ``world``: the victim's own share of its node is
    free then."""
    used = {name: _used(world.usage.get(name)) for name in world.nodes}

    def node_of(pod: Pod) -> str | None:
        resident = world.by_key.get(pod.key) or Resident(pod)
        best: tuple[float, str] | None = None
        for node in world.nodes.values():
            own = node.name == pod.node
            taken = {"pods": -1, **{k: -n for k, n in resident.requests.items()}} if own else None
            if not node.ready or why_not(world, resident, node, taken=taken) is not None:
                continue
            usage = used[node.name]
            if own and usage:
                mine = world.usage[node.name].pods.get(pod.key, {})
                usage = {name: usage[name] - mine.get(name, 0) for name in _NAMES}
            if usage and any(
                usage[name] * 100 > _USAGE_THRESHOLDS[name] * node.allocatable.get(name, 0)
                for name in _NAMES
            ):
                continue
            found = (-_score(world, resident, node, usage, own), node.name)
            if best is None or found < best:
                best = found
        return best[1] if best is not None else None

    return node_of


def _score(
    world: World, resident: Resident, node: Node, usage: dict[str, int] | None, own: bool
) -> float:
    requested = world.requested.get(node.name, {})
    total = 0.0
    for name in _NAMES:
        has = node.allocatable.get(name, 0)
        if not has:
            continue
        asked = resident.requests.get(name, 0)
        total += (has - requested.get(name, 0) - (0 if own else asked)) / has
        if usage:
            total += (has - usage[name] - asked) / has
    return total


def _used(report: NodeUsage | None) -> dict[str, int] | None:
    if report is None:
        return None
    return {
        name: report.system.get(name, 0) + sum(p.get(name, 0) for p in report.pods.values())
        for name in _NAMES
    }
