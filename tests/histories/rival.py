"""Owners beside the strategies of koordlet that want what others want too, so that every rule
of merging is played: few of them ever meet in one file by themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from koordlet.decision.options import Options
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.decision.snapshot import Application, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Why
from tests.histories.pods import MIB

NAME, RAISER = "rival", "raiser"


class RivalOptions(Options, frozen=True):
    """``seed``: of what they want."""

    seed: int = 0


_ANYWHERE: dict[Resource, tuple[Value, ...]] = {
    Resource.MEMORY_MIN: (0, 64 * MIB, 5000 * MIB),
    Resource.MEMORY_LOW: (0, 128 * MIB, 6000 * MIB),
    Resource.MEMORY_OOM_GROUP: (0, 1),
    Resource.MEMORY_WMARK_RATIO: (70, 90),
}
_OF_BEST_EFFORT: dict[Resource, tuple[Value, ...]] = {
    Resource.CPU_QUOTA_US: (UNLIMITED, 50_000, 170_000, 390_000),
    Resource.CPU_PERIOD_US: (50_000, 200_000),
    Resource.CPU_BURST_US: (0, 20_000, 200_000),
    Resource.CPU_SHARES: (50, 900),
    Resource.CPU_IDLE: (0, 1),
    Resource.CPU_BVT_WARP_NS: (-1, 0),
    Resource.CPUSET_CPUS: ("0", "0-1", "1-3", "2-3"),
    Resource.MEMORY_HIGH: (UNLIMITED, 600 * MIB, 1500 * MIB),
    Resource.FREEZE: (0,),
}
"""Applications of other classes keep what they ask for."""
_WHY = Why("rival.wants", "the history wants it")


def strategies(seed: int) -> tuple[Strategy[RivalOptions, None], ...]:
    """Want the same as long as ``seed`` is; 0: there are none."""
    if not seed:
        return ()
    return (
        _strategy(NAME, seed, _decide),
        _strategy(RAISER, seed, _raise),
    )


def _strategy(
    name: str, seed: int, decide: Callable[[int, Snapshot], Decision]
) -> Strategy[RivalOptions, None]:
    def function(snapshot: Snapshot, memory: None, options: RivalOptions) -> Decision:
        return decide(options.seed, snapshot)

    return Strategy(
        name=name,
        help="of a test",
        options=RivalOptions(seed=seed),
        function=function,
        initial=None,
        writes=tuple(Resource),
    )


def _raise(seed: int, snapshot: Snapshot) -> Decision:
    """More than a limit of the rival, or than one that nobody has."""
    settings = []
    for app in snapshot.applications:
        limits = dict(_of(app, random.Random(f"{seed} {app.name}")))
        limit = limits.get(Resource.CPU_QUOTA_US, UNLIMITED)
        if limit != UNLIMITED:
            raised, file = 2 * int(limit), (app.cgroup, Resource.CPU_QUOTA_US)
            limit = int(limit) + seed % 3 // 2
            settings.append(Setting(*file, raised, _WHY, raises=limit))
    return Decision(Plan(RAISER, tuple(settings)))


def _decide(seed: int, snapshot: Snapshot) -> Decision:
    chance = random.Random(seed)
    keeps = chance.choice((0.0, 0.0, 0.2))
    settings: list[Setting] = []
    keep: list[tuple[str, Resource]] = []
    for app in snapshot.applications:
        for resource, value in _of(app, random.Random(f"{seed} {app.name}")):
            if chance.random() < keeps:
                keep.append((app.cgroup, resource))
            else:
                settings.append(Setting(app.cgroup, resource, value, _WHY))
    return Decision(Plan(NAME, tuple(settings), keep=tuple(keep)))


def _of(app: Application, chance: random.Random) -> list[tuple[Resource, Value]]:
    if not app.present:
        return []
    values: dict[Resource, Any] = _ANYWHERE | (_OF_BEST_EFFORT if app.is_best_effort else {})
    return [(name, chance.choice(each)) for name, each in values.items() if chance.random() < 0.5]
