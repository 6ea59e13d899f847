"""Where a pod would go again if it were evicted now, in the words of the default profile: fit,
usage thresholds, least requested and least used. The scheduler's own engine may stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.world import NodeUsage, Resident, World
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import Pod

_NAMES = ("cpu", "memory")
_MOST = np.array((65.0, 95.0))
"""Percent of usage: of LoadAwareScheduling (docs/reference/central.md 2.1)."""


def simulation(world: World) -> Callable[[Pod], str | None]:
    """A victim -> its next node, or None. As of ``world``: the victim's own share of its node is
    free then. Nothing is computed before it is asked."""
    made: list[_Nodes] = []

    def node_of(pod: Pod) -> str | None:
        if not made:
            made.append(_Nodes(world))
        nodes = made[0]
        resident = world.by_key.get(pod.key) or Resident(pod)
        asked = np.array([resident.requests.get(name, 0) for name in _NAMES], np.int64)
        free, unused = nodes.free - asked, nodes.unused.copy()
        own = nodes.at.get(pod.node)
        if own is not None:
            free[own] += asked
            report = world.usage.get(pod.node)
            mine = report.pods.get(pod.key, {}) if report is not None else {}
            unused[own] += [mine.get(name, 0) for name in _NAMES]
        cold = ~nodes.reported | ((nodes.has - unused) * 100 <= _MOST * nodes.has).all(axis=1)
        left = free + np.where(nodes.reported[:, None], unused - asked, 0)
        shares = np.divide(left, nodes.has, out=np.zeros(left.shape), where=nodes.has > 0)
        scores = np.where(cold, shares.sum(axis=1), -np.inf)
        # Ties go to the first name.
        for at in np.argsort(-scores, kind="stable"):
            if not cold[at]:
                break
            taken = None
            if at == own:
                taken = {"pods": -1, **{name: -n for name, n in resident.requests.items()}}
            node = nodes.all[int(at)]
            if why_not(world, resident, node, taken=taken) is None:
                return node.name
        return None

    return node_of


class _Nodes:
    """Those that are ready, by name, a row for each: what they have, what is not requested of it,
    what is not used of it where that is reported."""

    def __init__(self, world: World) -> None:
        ready = (each for each in world.nodes.values() if each.ready)
        self.all = sorted(ready, key=lambda each: each.name)
        self.at = {each.name: number for number, each in enumerate(self.all)}
        self.has = _table([each.allocatable for each in self.all])
        self.free = self.has - _table([world.requested.get(each.name, {}) for each in self.all])
        used = [_used(world.usage.get(each.name)) for each in self.all]
        self.reported = np.array([each is not None for each in used], np.bool_)
        self.unused = self.has - _table([each or {} for each in used])


def _table(rows: list[Mapping[str, int]]) -> Ints:
    return np.array([[row.get(name, 0) for name in _NAMES] for row in rows], np.int64).reshape(
        len(rows), len(_NAMES)
    )


def _used(report: NodeUsage | None) -> dict[str, int] | None:
    if report is None:
        return None
    return {
        name: report.system.get(name, 0) + sum(p.get(name, 0) for p in report.pods.values())
        for name in _NAMES
    }
