"""Plugins of other packages, which an installed distribution offers by an entry point.

An entry point has the plugin's name and leads to its `Declared`. None is imported unless a profile
names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from koord_scheduler.model.cluster.arguments import Declared
from koord_scheduler.model.installed import installed
from koord_scheduler.place.plugins import PLUGINS
from koord_scheduler.plan.profile import GROUP, Profile, ProfileError, named, read_profiles

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def load_profiles(tree: Mapping[str, Any]) -> tuple[Profile, ...]:
    """As `read_profiles`, with what installed packages offer. Raises ProfileError."""
    ours = {each.name for each in PLUGINS}
    others = installed(GROUP)
    wanted = sorted((named(tree) - ours) & others.keys())
    offered = [declared(others[name]) for name in wanted]
    return read_profiles(tree, offered, installable=others)


def declared(entry: EntryPoint) -> Declared:
    """Imports the declaration. Raises ProfileError."""
    origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
    try:
        found = entry.load()
    except Exception as error:  # another package's code: whatever it raises
        text = f"plugin {entry.name} of {origin} cannot be imported: {error!r}"
        raise ProfileError(text) from error
    if not isinstance(found, Declared) or found.name != entry.name:
        raise ProfileError(
            f"plugin {entry.name} of {origin}: {entry.value} must be a Declared of that name"
        )
    return found._replace(by_default=False)
