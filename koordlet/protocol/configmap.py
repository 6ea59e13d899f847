"""``slo-controller-config`` and NodeSLO documents as people have them (spec/protocol.md 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.protocol import colocation
from koordlet.protocol.decode import decode, nearest
from koordlet.protocol.document import parse_json
from koordlet.protocol.errors import Problem, ProtocolError, join
from koordlet.protocol.merge import overlay
from koordlet.protocol.selector import LabelSelector, matches, selector_problems
from koordlet.protocol.slo import (
    CPUBurstStrategy,
    HostApplicationSpec,
    NodeSLOSpec,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    Section,
    SystemStrategy,
)


class HostApplications(Section, frozen=True):
    applications: tuple[HostApplicationSpec, ...] | None = None


class ConfigKey(NamedTuple):
    """One key of the ConfigMap.

    ``inline``: the cluster layer stands beside ``nodeConfigs`` instead of in ``clusterStrategy``
    beside ``nodeStrategies``. ``replaces``: a node entry replaces the cluster layer instead of
    being merged over it. ``slo_field``: what it becomes in a NodeSLO, empty where the manager
    alone uses it.
    """

    key: str
    strategy: type[Section]
    slo_field: str = ""
    inline: bool = False
    replaces: bool = False
    empty_is_default: bool = False
    defaults: Section | None = None


CONFIG_KEYS: dict[str, ConfigKey] = {
    config.key: config
    for config in (
        ConfigKey(
            "colocation-config",
            colocation.ColocationStrategy,
            inline=True,
            empty_is_default=True,
            defaults=colocation.COLOCATION_DEFAULTS,
        ),
        ConfigKey(
            "resource-threshold-config",
            ResourceThresholdStrategy,
            "resource_used_threshold_with_be",
        ),
        ConfigKey("resource-qos-config", ResourceQOSStrategy, "resource_qos_strategy"),
        ConfigKey("cpu-burst-config", CPUBurstStrategy, "cpu_burst_strategy"),
        ConfigKey("system-config", SystemStrategy, "system_strategy"),
        ConfigKey(
            "host-application-config",
            HostApplications,
            "host_applications",
            inline=True,
            replaces=True,
        ),
        ConfigKey(
            "cpu-normalization-config",
            colocation.CPUNormalizationStrategy,
            inline=True,
            defaults=colocation.CPU_NORMALIZATION_DEFAULTS,
        ),
        ConfigKey(
            "resource-amplification-config",
            colocation.ResourceAmplificationStrategy,
            inline=True,
            defaults=colocation.RESOURCE_AMPLIFICATION_DEFAULTS,
        ),
    )
}
"""``defaults`` stand only with the manager's strategies: what goes into a NodeSLO gets its
defaults from ``slo_defaults.effective``, which merges to the same."""


def _document_type(config: ConfigKey) -> type[msgspec.Struct]:
    """The Struct that a key's JSON decodes to; all eight differ in the strategy alone."""
    name = config.strategy.__name__
    entry = msgspec.defstruct(
        f"{name}Entry",
        [("name", str | None, None), ("node_selector", LabelSelector | None, None)],
        bases=(config.strategy,),
        frozen=True,
    )
    entries = tuple[entry, ...] | None  # type: ignore[valid-type]
    if config.inline:
        fields: list[Any] = [("node_configs", entries, None)]
        return msgspec.defstruct(f"{name}Cfg", fields, bases=(config.strategy,), frozen=True)
    fields = [
        ("cluster_strategy", config.strategy | None, None),
        ("node_strategies", entries, None),
    ]
    return msgspec.defstruct(f"{name}Cfg", fields, bases=(Section,), frozen=True)


_DOCUMENT_TYPES = {config.key: _document_type(config) for config in CONFIG_KEYS.values()}


def load_config(
    data: Mapping[str, Any], node_labels: Mapping[str, str], path: str = "$"
) -> dict[str, Section]:
    """ConfigMap key -> strategy of the node with ``node_labels``, keys absent left out.

    Raises ProtocolError with the problems of all keys.
    """
    found: dict[str, Section] = {}
    problems: list[Problem] = []
    for key, text in data.items():
        where = join(path, key)
        config = CONFIG_KEYS.get(key)
        try:
            if config is None:
                raise ProtocolError(Problem(where, "unknown key", nearest(key, CONFIG_KEYS)))
            found[key] = _strategy(config, text, node_labels, where)
        except ProtocolError as error:
            problems += error.problems
    if problems:
        raise ProtocolError(tuple(problems))
    return found


def _strategy(config: ConfigKey, text: Any, labels: Mapping[str, str], path: str) -> Section:
    if not isinstance(text, str):
        raise ProtocolError(Problem(path, "must be a string that holds JSON"))
    tree = {} if config.empty_is_default and not text else parse_json(text, path)
    document: Any = decode(
        _DOCUMENT_TYPES[config.key], {} if tree is None else tree, strict=True, path=path
    )
    if config.inline:
        cluster, entries, name = _part(config, document), document.node_configs, "nodeConfigs"
    else:
        cluster, entries = document.cluster_strategy, document.node_strategies
        name = "nodeStrategies"
    cluster = overlay(config.defaults, cluster) or config.strategy()
    _check_selectors(entries or (), join(path, name))
    for entry in entries or ():
        if matches(entry.node_selector, labels):
            own = _part(config, entry)
            return own if config.replaces else overlay(cluster, own) or own
    return cluster


def _part(config: ConfigKey, document: Section) -> Section:
    """The strategy's own fields of a document or entry that extends it."""
    return config.strategy(
        **{name: getattr(document, name) for name in config.strategy.__struct_fields__}
    )


def _check_selectors(entries: tuple[Any, ...], path: str) -> None:
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        where = join(join(path, index), "nodeSelector")
        if entry.node_selector is None:
            problems.append(Problem(where, "is missing: without it the entry matches no node"))
        else:
            problems += selector_problems(entry.node_selector, where)
    if problems:
        raise ProtocolError(tuple(problems))


# What else stands in an object taken from a cluster.
_ENVELOPE = {"apiVersion", "kind", "metadata"}
_ENVELOPES = {
    "ConfigMap": ("data", _ENVELOPE | {"data", "binaryData", "immutable"}),
    "NodeSLO": ("spec", _ENVELOPE | {"spec", "status"}),
}


def load_slo(document: Any, node_labels: Mapping[str, str], path: str = "$") -> NodeSLOSpec:
    """The NodeSLO that ``document`` holds, before defaults. Raises ProtocolError.

    ``document`` is a ConfigMap object, its ``data``, a NodeSLO object or its ``spec``.
    """
    if not isinstance(document, dict):
        raise ProtocolError(Problem(path, "must be a NodeSLO, its spec, or a ConfigMap"))
    kind = _kind(document, path)
    if kind:
        inner, allowed = _ENVELOPES[kind]
        problems = [
            Problem(join(path, key), f"unknown key of a {kind}", nearest(key, allowed))
            for key in document
            if key not in allowed
        ]
        if inner not in document:
            problems.append(Problem(join(path, inner), "is missing"))
        if problems:
            raise ProtocolError(tuple(problems))
        document, path = document[inner], join(path, inner)
        if not isinstance(document, dict):
            raise ProtocolError(Problem(path, "must be an object"))
    if kind != "ConfigMap" and not (not kind and any(map(_looks_like_config_key, document))):
        return decode(NodeSLOSpec, document, strict=True, path=path)
    strategies = load_config(document, node_labels, path)
    fields: dict[str, Any] = {}
    for key, strategy in strategies.items():
        if field := CONFIG_KEYS[key].slo_field:
            fields[field] = (
                strategy.applications if isinstance(strategy, HostApplications) else strategy
            )
    return NodeSLOSpec(**fields)


def _kind(document: Mapping[str, Any], path: str) -> str:
    """Name of the envelope, ``""`` for a document without one."""
    kind = document.get("kind")
    if kind is None:
        return "ConfigMap" if "data" in document else "NodeSLO" if "spec" in document else ""
    if not isinstance(kind, str) or kind not in _ENVELOPES:
        near = nearest(kind, _ENVELOPES) if isinstance(kind, str) else ""
        raise ProtocolError(Problem(join(path, "kind"), "must be NodeSLO or ConfigMap", near))
    return kind


def _looks_like_config_key(key: str) -> bool:
    return key in CONFIG_KEYS or key.endswith("-config")
