"""All plugins of the descheduler, one line each, and those that other packages offer.

An installed distribution offers plugins by entry points of the group
``koord_scheduler.descheduler_plugins``: the name is the plugin's, and it leads to a `Plugin`. None
is imported before a profile enables it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.installed import installed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "koord_scheduler.descheduler_plugins"
DESCHEDULE, BALANCE, EVICT, FILTER = POINTS = ("deschedule", "balance", "evict", "filter")


class Plugin(NamedTuple):
    """``points``: where a profile may enable it. ``make`` is ``module:function`` of
    ``f(args: Mapping[str, Any])``, which raises ArgumentError; what it makes is a ``Runs``, or for
    the last two points an ``Evictor`` and a ``Filter`` (`round.py`)."""

    name: str
    points: tuple[str, ...]
    help: str
    make: str


def _upstream(name: str, point: str, about: str, make: str) -> Plugin:
    return Plugin(name, (point,), about, f"koord_scheduler.balance.upstream.{make}")


def _ours(name: str, points: tuple[str, ...], about: str, make: str) -> Plugin:
    return Plugin(name, points, about, f"koord_scheduler.balance.{make}")


PLUGINS: tuple[Plugin, ...] = (
    _ours(
        "MigrationController",
        (EVICT, FILTER),
        "moves pods by jobs, within limits, room on another node first",
        "controller:make_controller",
    ),
    _ours(
        "DefaultEvictor",
        (EVICT, FILTER),
        "evicts through the eviction API at once",
        "controller:make_default",
    ),
    _ours("LowNodeLoad", (BALANCE,), "moves pods off nodes that use much", "low_node_load:make"),
    _ours(
        "CustomPriority",
        (BALANCE,),
        "empties expensive nodes onto cheaper ones",
        "custom_priority:make",
    ),
    _ours(
        "FragmentationAware",
        (BALANCE,),
        "evens out how much of each resource nodes have left",
        "fragmentation:make",
    ),
    _ours(
        "ScaleDownBinPack",
        (BALANCE,),
        "says which pods a scale-down should remove",
        "bin_pack:make",
    ),
    _upstream(
        "LowNodeUtilization",
        BALANCE,
        "moves pods off nodes of which much is requested",
        "utilization:make_low",
    ),
    _upstream(
        "HighNodeUtilization",
        BALANCE,
        "empties nodes of which little is requested",
        "utilization:make_high",
    ),
    _upstream(
        "RemoveDuplicates",
        BALANCE,
        "spreads pods of one controller over nodes",
        "violations:make_duplicates",
    ),
    _upstream(
        "RemovePodsViolatingTopologySpreadConstraint",
        BALANCE,
        "evens out pods over their topology domains",
        "spread:make",
    ),
    _upstream("PodLifeTime", DESCHEDULE, "evicts pods of an age", "pods:make_life_time"),
    _upstream("RemoveFailedPods", DESCHEDULE, "evicts pods that failed", "pods:make_failed"),
    _upstream(
        "RemovePodsHavingTooManyRestarts",
        DESCHEDULE,
        "evicts pods whose containers keep restarting",
        "pods:make_restarts",
    ),
    _upstream(
        "RemovePodsViolatingInterPodAntiAffinity",
        DESCHEDULE,
        "evicts pods that others want not beside them",
        "violations:make_anti_affinity",
    ),
    _upstream(
        "RemovePodsViolatingNodeAffinity",
        DESCHEDULE,
        "evicts pods whose affinity the node does not match",
        "violations:make_affinity",
    ),
    _upstream(
        "RemovePodsViolatingNodeTaints",
        DESCHEDULE,
        "evicts pods that do not tolerate the node's taints",
        "violations:make_taints",
    ),
)


class Known:
    """Built-in plugins, and those of other packages by name."""

    def __init__(self, offered: Mapping[str, EntryPoint] | None = None) -> None:
        self._built_in = {each.name: each for each in PLUGINS}
        if offered is None:
            offered = installed(GROUP)
        self._offered = {name: each for name, each in offered.items() if name not in self._built_in}

    def names(self) -> tuple[str, ...]:
        return (*self._built_in, *sorted(self._offered))

    def get(self, name: str) -> Plugin:
        """Raises ArgumentError where there is none, or its package cannot be loaded."""
        found = self._built_in.get(name)
        if found is not None:
            return found
        entry = self._offered.get(name)
        if entry is None:
            known = ", ".join(self.names())
            raise ArgumentError(f"no plugin is called {name[:80]!r}; there are: {known}")
        try:
            loaded = entry.load()
        except Exception as error:  # a package of others may raise anything at import
            raise ArgumentError(f"{name}: {entry.value} cannot be loaded: {error}") from error
        if not isinstance(loaded, Plugin) or loaded.name != name:
            raise ArgumentError(f"{name}: {entry.value} is no Plugin of this name")
        return loaded


def made(plugin: Plugin, args: Mapping[str, Any]) -> Any:
    """Raises ArgumentError."""
    module, _, function = plugin.make.partition(":")
    make: Callable[[Mapping[str, Any]], Any] = getattr(importlib.import_module(module), function)
    return make(args)
