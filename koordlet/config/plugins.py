"""Parts of other packages: collectors, strategies and hooks that an installed distribution offers
by an entry point (https://packaging.python.org/en/latest/specifications/entry-points/).

None of them runs unless ``[plugins.NAME]`` has ``enable = true``; only then is its module imported.
One that cannot be had is a problem of the daemon, which runs without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from koordlet.collectors.base import CollectorPart
from koordlet.config.part_tables import TABLES
from koordlet.decision.part import Part
from koordlet.decision.strategy import Hook, Strategy
from koordlet.hooks import HOOKS
from koordlet.hooks.combine import check
from koordlet.protocol.decode import decode_partly, nearest
from koordlet.protocol.errors import Problem, join

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: Mapping[str, type[Part[Any]]] = {
    "collectors": CollectorPart,
    "strategies": Strategy,
    "hooks": Hook,
}
GROUPS = tuple(f"koordlet.{table}" for table in KINDS)
"""The entry-point groups. An entry point names the declaration: ``package.module:STRATEGY``."""


@dataclass(frozen=True)
class Plugin:
    """``table``: "collectors", "strategies" or "hooks". ``origin``: distribution and version."""

    name: str
    table: str
    origin: str
    entry_point: EntryPoint


@dataclass(frozen=True)
class LoadedPlugins:
    """``parts``: those that are switched on, with their options, by table. ``faults``: what is
    wrong with an option. ``missing``: what is switched on and cannot be had here."""

    parts: Mapping[str, tuple[Part[Any], ...]]
    faults: tuple[Problem, ...] = ()
    missing: tuple[Problem, ...] = ()

    def of(self, table: str) -> tuple[Part[Any], ...]:
        return self.parts.get(table, ())


NOTHING = LoadedPlugins({})


@cache
def installed() -> Mapping[str, Plugin]:
    """Every part that an installed distribution offers, by name; nothing is imported."""
    from importlib.metadata import entry_points  # 2 MiB that most nodes do without

    found: dict[str, Plugin] = {}
    for table, group in zip(KINDS, GROUPS, strict=True):
        for entry in entry_points(group=group):
            origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
            found.setdefault(entry.name, Plugin(entry.name, table, origin, entry))
    return found


def origin(name: str) -> str:
    """Distribution and version that offer a part; empty where none is installed."""
    plugin = installed().get(name)
    return plugin.origin if plugin is not None else ""


def load(tables: Mapping[str, Mapping[str, Any]]) -> LoadedPlugins:
    """What ``[plugins.*]`` asks for."""
    if not tables:
        return NOTHING
    parts: dict[str, tuple[Any, ...]] = {}
    faults: list[Problem] = []
    missing: list[Problem] = []
    for name, values in tables.items():
        path, is_on = join("plugins", name), values.get("enable", False)
        if not isinstance(is_on, bool):
            faults.append(Problem(join(path, "enable"), "must be true or false"))
        if is_on is not True:
            continue
        table, found = _part(name, path)
        if isinstance(found, Problem):
            missing.append(found)
            continue
        options, wrong = decode_partly(
            type(found.options), dict(values), strict=True, fold_case=False, path=path
        )
        part = found.with_options(options)
        if isinstance(part, Hook):
            try:
                check((*HOOKS.values(), *parts.get(table, ()), part))
            except ValueError as error:
                missing.append(Problem(path, str(error)))
                continue
        faults += wrong or _own_problems(part, path)
        parts[table] = (*parts.get(table, ()), part)
    return LoadedPlugins(parts, tuple(faults), tuple(missing))


def _part(name: str, path: str) -> tuple[str, Part[Any] | Problem]:
    """(table, the part or why there is none)."""
    plugin = installed().get(name)
    if plugin is None:
        offered = ", ".join(sorted(installed())) or "none"
        text = f"no installed package offers a part of this name; installed: {offered}"
        return "", Problem(path, text, nearest(name, installed()))
    if any(name in ours for ours in TABLES.values()):
        return "", Problem(path, f"koordlet has a part {name!r} of its own ({plugin.origin})")
    try:
        found = plugin.entry_point.load()
    except Exception as error:  # the isolation boundary: whatever its module raises
        text = f"{plugin.origin}: cannot be imported: {type(error).__name__}: {error}"
        return "", Problem(path, text)
    kind = KINDS[plugin.table]
    if not isinstance(found, kind) or found.name != name:
        text = f"{plugin.entry_point.value} of {plugin.origin} is no {kind.__name__} {name!r}"
        return "", Problem(path, text)
    return plugin.table, found


def _own_problems(part: Part[Any], path: str) -> Iterator[Problem]:
    try:
        for each in part.problems():
            yield Problem(f"{path}.{each.path}", each.message, each.nearest)
    except Exception as error:  # the isolation boundary: a check of somebody else's
        yield Problem(path, f"its check of the options failed: {type(error).__name__}: {error}")
