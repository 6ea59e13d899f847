"""Profiles: which plugins a scheduler asks, with which weights and arguments.

``KubeSchedulerConfiguration`` (kubescheduler.config.k8s.io/v1) and the reference's files
(docs/reference/central.md 8.6) are read alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from koord_scheduler.model.cluster.arguments import Declared, without_nulls
from koord_scheduler.model.cluster.verdict import Plugin
from koord_scheduler.place.plugins import PLUGINS
from koordlet.protocol import resources
from koordlet.protocol.decode import nearest

GROUP = "koord_scheduler.plugins"
"""Entry points of other packages; each names a `Declared`."""
SCHEDULER_NAME = "koord-scheduler"
OWN = frozenset(
    {"Coscheduling", "ElasticQuota", "DefaultPreemption", "SchedulingGates", "PrioritySort"}
    | {"DefaultBinder", "DefaultPreBind"}
)
"""Parts of a profile that are no plugins here: the queue, gates, preemption and the binding."""
OF_KUBERNETES = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts"}
    | {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "PodTopologySpread"}
    | {"InterPodAffinity", "ImageLocality", "DefaultPreemption"}
)
_NOT_HERE = frozenset(
    {"VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits", "DynamicResources"}
    | {"EBSLimits", "GCEPDLimits", "AzureDiskLimits", "GangScheduling", "NodeDeclaredFeatures"}
    | {"DeferredPodScheduling"}
)
"""Plugins of kube-scheduler whose pods are refused in words, or served by others here."""
_MAY_BE_NAMED = OWN | OF_KUBERNETES | _NOT_HERE
OF_OURS = frozenset({"NodeStrain"})
"""Plugins that neither kube-scheduler nor the reference has."""
_UNLESS_DISABLED = OF_KUBERNETES | OF_OURS
_MOST_WEIGHT = 1_000_000
_FILTERING = ("multiPoint", "preFilter", "filter", "reserve", "preBind")
_SCORING = ("multiPoint", "preScore", "score")
_POINTS = frozenset(
    {*_FILTERING, *_SCORING, "preEnqueue", "queueSort", "postFilter", "permit", "bind", "postBind"}
)
_MOST_PROFILES = 16
_KIND = "KubeSchedulerConfiguration"
_API_VERSIONS = tuple(f"kubescheduler.config.k8s.io/{e}" for e in ("v1", "v1beta3", "v1beta2"))
_BATCH = (resources.BATCH_CPU, resources.BATCH_MEMORY)
SAMPLE_ARGS: Mapping[str, Mapping[str, Any]] = {
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": False,
        "nodeMetricExpirationSeconds": 300,
        "resourceWeights": {"cpu": 1, "memory": 1},
        "usageThresholds": {"cpu": 0, "memory": 0},
        "estimatedScalingFactors": {"cpu": 85, "memory": 70},
    },
    "NodeResourcesFit": {
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": [
                {"name": name, "weight": 1}
                for name in (
                    "cpu",
                    "memory",
                    "kubernetes.io/batch-cpu",
                    "kubernetes.io/batch-memory",
                )
            ],
        }
    },
}
"""Arguments of the built-in profile."""


class ProfileError(Exception):
    """The text says what is wrong with which profile, and what to write."""


class Enabled(NamedTuple):
    """``filters``: what it refuses is refused. ``scores``: its score counts, times ``weight``."""

    declared: Declared
    weight: int = 1
    filters: bool = True
    scores: bool = True


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """``enabled`` is in the order in which plugins are asked. ``own``: names of `OWN` that are on.
    ``args``: of every plugin and every name of `OWN`, as given."""

    scheduler_name: str = SCHEDULER_NAME
    enabled: tuple[Enabled, ...] = ()
    own: frozenset[str] = OWN
    args: Mapping[str, Mapping[str, Any]] = {}


class _Item(msgspec.Struct, frozen=True):
    name: str
    weight: Annotated[int, msgspec.Meta(ge=0, le=_MOST_WEIGHT)] = 0


class _Set(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: tuple[_Item, ...] = ()
    disabled: tuple[_Item, ...] = ()


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] | None = None


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = "default-scheduler"
    plugins: dict[str, _Set] | None = None
    plugin_config: tuple[_Config, ...] = ()


class _File(msgspec.Struct, frozen=True):
    """What else such a file has (leader election, client connection) is no profile's."""

    kind: str = _KIND
    api_version: str = msgspec.field(default=_API_VERSIONS[0], name="apiVersion")
    profiles: tuple[_Profile, ...] = ()


def built_in(
    scheduler_name: str = SCHEDULER_NAME, plugins: Sequence[Declared] = PLUGINS
) -> Profile:
    """The reference's sample profile (docs/reference/central.md 8.6)."""
    enabled = tuple(Enabled(each, each.weight) for each in plugins if each.by_default)
    return Profile(scheduler_name=scheduler_name, enabled=enabled, args=SAMPLE_ARGS)


def read_profiles(
    tree: Mapping[str, Any],
    offered: Iterable[Declared] = (),
    plugins: Sequence[Declared] = PLUGINS,
    installable: Iterable[str] = (),
) -> tuple[Profile, ...]:
    """Of a configuration file, as its YAML was read. ``offered``: plugins of other packages, which
    come after ours; ``installable``: names of those that are there, for messages. A profile
    without ``plugins`` is the built-in one, with its arguments replaced plugin by plugin. Raises
    ProfileError.
    """
    found = _file(tree)
    if len(found.profiles) > _MOST_PROFILES:
        raise ProfileError(f"profiles: at most {_MOST_PROFILES} are read")
    known = {each.name: each for each in plugins}
    for each in offered:
        known.setdefault(each.name, each)
    names = sorted({*known, *installable})
    profiles = tuple(_read(profile, known, names) for profile in found.profiles)
    if len({profile.scheduler_name for profile in profiles}) < len(profiles):
        raise ProfileError("profiles: two of them have the same schedulerName; give each its own")
    return profiles or (built_in(plugins=plugins),)


def named(tree: Mapping[str, Any]) -> frozenset[str]:
    """Plugins that a configuration file enables. Raises ProfileError."""
    profiles = _file(tree).profiles
    sets = [each for profile in profiles for each in (profile.plugins or {}).values()]
    return frozenset(item.name for each in sets for item in each.enabled)


def make(profile: Profile) -> tuple[tuple[Plugin, Enabled], ...]:
    """The plugins themselves. One that has ``connect(plugins)`` is given all others by name at the
    end. Raises ArgumentError or ProfileError."""
    made: list[tuple[Plugin, Enabled]] = []
    for enabled in profile.enabled:
        name = enabled.declared.name
        plugin: Plugin = _function(enabled.declared)(profile.args.get(name, {}))
        if plugin.name != name:
            raise ProfileError(f"plugin {name}: what it makes calls itself {plugin.name!r}")
        made.append((plugin, enabled))
    by_name = {plugin.name: plugin for plugin, _ in made}
    for plugin, _ in made:
        connect = getattr(plugin, "connect", None)
        if connect is not None:
            connect(by_name)
    return tuple(made)


def _function(declared: Declared) -> Callable[[Mapping[str, Any]], Any]:
    module, _, name = declared.make.partition(":")
    try:
        found: Callable[[Mapping[str, Any]], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        text = f"plugin {declared.name} cannot be had from {declared.make}: {error}"
        raise ProfileError(text) from None
    return found


def _file(tree: Mapping[str, Any]) -> _File:
    try:
        found = msgspec.convert(without_nulls(tree), _File)
    except msgspec.ValidationError as error:
        raise ProfileError(f"the configuration cannot be read: {error}") from None
    if found.kind != _KIND or found.api_version not in _API_VERSIONS:
        given = f"apiVersion and kind are {found.api_version[:80]} and {found.kind[:80]}"
        raise ProfileError(f"{given}; they must be {_API_VERSIONS[0]} and {_KIND}")
    return found


def _read(profile: _Profile, known: Mapping[str, Declared], names: Sequence[str]) -> Profile:
    where = f"profile {profile.scheduler_name}"
    given = {each.name: each.args or {} for each in profile.plugin_config}
    for name in given:
        if name not in known and name not in _MAY_BE_NAMED:
            raise ProfileError(f"{where}: pluginConfig: {_unknown(name, names)}")
    if profile.plugins is None:
        base = built_in(profile.scheduler_name, tuple(known.values()))
        return msgspec.structs.replace(base, args={**SAMPLE_ARGS, **given})
    return Profile(
        scheduler_name=profile.scheduler_name,
        enabled=_enabled(profile.plugins, known, names, where),
        own=OWN - _disabled_of_own(profile.plugins),
        args=given,
    )


def _enabled(
    sets: Mapping[str, _Set], known: Mapping[str, Declared], names: Sequence[str], where: str
) -> tuple[Enabled, ...]:
    filters, scores = set(_UNLESS_DISABLED), set(_UNLESS_DISABLED)
    weights: dict[str, int] = {}
    for point in sorted(sets, key=lambda name: name != "multiPoint"):
        if point not in _POINTS:
            raise ProfileError(f"{where}: plugins.{point} is no extension point")
        targets = [
            chosen
            for chosen, points in ((filters, _FILTERING), (scores, _SCORING))
            if point in points
        ]
        for item in sets[point].disabled:
            for chosen in targets:
                if item.name == "*":
                    chosen.clear()
                chosen.discard(item.name)
        for item in sets[point].enabled:
            if item.name not in known and item.name not in _MAY_BE_NAMED:
                raise ProfileError(f"{where}: plugins.{point}: {_unknown(item.name, names)}")
            for chosen in targets:
                chosen.add(item.name)
            if item.weight and point in _SCORING:
                weights[item.name] = item.weight
    return tuple(
        Enabled(
            declared,
            weights.get(name, declared.weight),
            filters=name in filters,
            scores=name in scores,
        )
        for name, declared in known.items()
        if name in filters or name in scores
    )


def _disabled_of_own(sets: Mapping[str, _Set]) -> frozenset[str]:
    """Coscheduling and ElasticQuota are on where any extension point enables them; what belongs to
    Kubernetes is on unless it is disabled."""
    on = {item.name for each in sets.values() for item in each.enabled}
    off = {item.name for each in sets.values() for item in each.disabled} - on
    if "*" in {item.name for item in sets.get("postFilter", _Set()).disabled}:
        off |= {"DefaultPreemption"} - on
    return frozenset(off | ({"Coscheduling", "ElasticQuota"} - on))


def _unknown(name: str, names: Sequence[str]) -> str:
    hint = nearest(name, names)
    meant = f"; did you mean {hint}?" if hint else "."
    return f"there is no plugin {name!r}{meant} There are {', '.join(names) or 'none'}"
