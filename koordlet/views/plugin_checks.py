"""Parts that installed packages offer, as lines of `koordlet doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.config import plugins
from koordlet.protocol.errors import join

COST = "koordlet runs without it"
REMEDY = "install or mend its package, or switch it off"

Tables = Mapping[str, Mapping[str, Any]]
"""``[plugins.*]`` of a configuration."""


def offered(tables: Tables) -> Iterator[CheckView]:
    """Every part of another package, off or on."""
    running = {part.name for parts in plugins.load(tables).parts.values() for part in parts}
    for name, plugin in sorted(plugins.installed().items()):
        kind = plugins.KINDS[plugin.table].__name__.removesuffix("Part").lower()
        off = f"off; {join('plugins', name)}.enable = true switches it on"
        how = "switched on" if name in running else off
        why = f"{kind} of {plugin.origin}, {how}"
        yield CheckView(name=f"plugin: {name}", state=CheckState.OK, why=why)


def missing(tables: Tables) -> Iterator[CheckView]:
    """Those that are switched on and cannot be had."""
    for problem in plugins.load(tables).missing:
        yield CheckView(
            name=problem.path,
            state=CheckState.LIMITED,
            why=problem.message,
            cost=COST,
            remedy=REMEDY,
        )
