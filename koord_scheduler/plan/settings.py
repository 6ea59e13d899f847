"""``--set loadaware.cpu=70``: another policy than that of a file, by one argument at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Declared
from koord_scheduler.place.plugins import PLUGINS
from koord_scheduler.plan.profile import OWN, Enabled, Profile, ProfileError
from koordlet.protocol.decode import nearest
from koordlet.protocol.document import UNREADABLE

SHORT_NAMES: Mapping[str, str] = {
    "loadaware": "LoadAwareScheduling",
    "strain": "NodeStrain",
    "fit": "NodeResourcesFit",
    "balanced": "NodeResourcesBalancedAllocation",
    "numa": "NodeNUMAResource",
    "device": "DeviceShare",
    "reservation": "Reservation",
    "spread": "PodTopologySpread",
    "affinity": "InterPodAffinity",
    "taints": "TaintToleration",
    "gang": "Coscheduling",
    "quota": "ElasticQuota",
    "preemption": "DefaultPreemption",
}
SHORT_PATHS: Mapping[tuple[str, str], str] = {
    ("LoadAwareScheduling", "cpu"): "usageThresholds.cpu",
    ("LoadAwareScheduling", "memory"): "usageThresholds.memory",
    ("LoadAwareScheduling", "prod-cpu"): "prodUsageThresholds.cpu",
    ("LoadAwareScheduling", "prod-memory"): "prodUsageThresholds.memory",
    ("NodeResourcesFit", "strategy"): "scoringStrategy.type",
    ("NodeNUMAResource", "strategy"): "scoringStrategy.type",
    ("DeviceShare", "strategy"): "scoringStrategy.type",
}
_MOST_DEPTH = 16


def with_settings(
    profiles: tuple[Profile, ...], settings: Iterable[str], plugins: Sequence[Declared] = PLUGINS
) -> tuple[Profile, ...]:
    """``PLUGIN.ARGUMENT=VALUE`` of all profiles, where ARGUMENT may be a path with dots and VALUE
    is JSON or plain text; ``PLUGIN.weight=N`` and ``PLUGIN.enabled=true|false``. PLUGIN may be one
    of `SHORT_NAMES`. Raises ProfileError; wrong values show where the plugin is made."""
    for setting in settings:
        where, sign, text = setting.partition("=")
        name, dot, path = where.strip().partition(".")
        if not (sign and dot and path):
            raise ProfileError(f"{setting!r}: write PLUGIN.ARGUMENT=VALUE, as loadaware.cpu=70")
        name = _plugin(name, plugins)
        path = SHORT_PATHS.get((name, path), path)
        profiles = tuple(_with(each, name, path, _value(text), plugins) for each in profiles)
    return profiles


def _plugin(name: str, plugins: Sequence[Declared]) -> str:
    full = SHORT_NAMES.get(name.lower(), name)
    known = {each.name for each in plugins} | OWN
    if full not in known:
        names = sorted({*known, *(s for s, long in SHORT_NAMES.items() if long in known)})
        hint = nearest(name, names)
        meant = f"; did you mean {hint}?" if hint else f". There are {', '.join(names)}"
        raise ProfileError(f"there is no plugin {name!r}{meant}")
    return full


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _with(
    profile: Profile, name: str, path: str, value: Any, plugins: Sequence[Declared]
) -> Profile:
    replace = msgspec.structs.replace
    if path == "enabled":
        if not isinstance(value, bool):
            raise ProfileError(f"{name}.enabled is true or false, not {value!r}")
        return _switched(profile, name, value, plugins)
    if path == "weight":
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ProfileError(f"{name}.weight is a whole number, not {value!r}")
        enabled = (
            each._replace(weight=value) if each.declared.name == name else each
            for each in profile.enabled
        )
        return replace(profile, enabled=tuple(enabled))
    names = path.split(".")
    if len(names) > _MOST_DEPTH:
        raise ProfileError(f"{name}.{path[:64]}: no argument is that deep")
    args = _into(profile.args.get(name, {}), names, value)
    return replace(profile, args={**profile.args, name: args})


def _into(tree: Any, path: Sequence[str], value: Any) -> dict[str, Any]:
    found = dict(tree) if isinstance(tree, Mapping) else {}
    first, rest = path[0], path[1:]
    found[first] = _into(found.get(first), rest, value) if rest else value
    return found


def _switched(profile: Profile, name: str, on: bool, plugins: Sequence[Declared]) -> Profile:
    if name in OWN:
        own = profile.own | {name} if on else profile.own - {name}
        return msgspec.structs.replace(profile, own=own)
    there = {each.declared.name: each for each in profile.enabled}
    if on and name not in there:
        found = next(each for each in plugins if each.name == name)
        there[name] = Enabled(found, found.weight)
    elif not on:
        there.pop(name, None)
    order = {each.name: at for at, each in enumerate(plugins)}
    enabled = sorted(there.values(), key=lambda each: order.get(each.declared.name, len(order)))
    return msgspec.structs.replace(profile, enabled=tuple(enabled))
