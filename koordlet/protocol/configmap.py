"""``slo-controller-config`` and NodeSLO documents as people have them
(docs/reference/protocol.md 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.protocol import colocation
from koordlet.protocol.decode import decode_partly, nearest
from koordlet.protocol.document import parse_json
from koordlet.protocol.errors import Problem, ProtocolError, Refused, join
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
    problems: list[Problem] = []
    found = _strategies(data, node_labels, path, problems)
    if problems:
        raise ProtocolError(tuple(problems))
    return found


def _strategies(
    data: Mapping[str, Any], labels: Mapping[str, str], path: str, problems: list[Problem]
) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for key, text in data.items():
        where = join(path, key)
        config = CONFIG_KEYS.get(key)
        if config is None:
            problems.append(Problem(where, "unknown key", nearest(key, CONFIG_KEYS)))
            continue
        try:
            found[key] = _strategy(config, text, labels, where, problems)
        except ProtocolError as error:
            problems += error.problems
    return found


class NodeEntry(NamedTuple):
    """A node entry with its strategy, the cluster layer below it. ``faulty``: something in it was
    refused."""

    name: str
    selector: LabelSelector
    strategy: Section
    faulty: bool


class Layers(NamedTuple):
    """One key. ``refused``: what is wrong in it. ``passed_over``: of entries that are left out,
    because no selector can be read there."""

    cluster: Section
    entries: tuple[NodeEntry, ...]
    refused: tuple[Problem, ...]
    passed_over: tuple[Problem, ...]


def read_layers(
    config: ConfigKey, text: Any, path: str, defaults: Section | None, *, strict: bool
) -> Layers:
    """All layers of a key, over ``defaults``. Raises ProtocolError where the text is no document at
    all. ``strict`` refuses unknown and repeated keys."""
    if not isinstance(text, str):
        raise ProtocolError(Problem(path, "must be a string that holds JSON"))
    tree = {} if config.empty_is_default and not text else parse_json(text, path, repeated=strict)
    document: Any
    document, refused = decode_partly(
        _DOCUMENT_TYPES[config.key], {} if tree is None else tree, strict=strict, path=path
    )
    if document is msgspec.UNSET:
        return Layers(config.strategy(), (), refused, ())
    if config.inline:
        cluster, entries, name = _part(config, document), document.node_configs, "nodeConfigs"
    else:
        cluster, entries = document.cluster_strategy, document.node_strategies
        name = "nodeStrategies"
    cluster = overlay(defaults, cluster) or config.strategy()
    where = join(path, name)
    faults, passed_over, found = Refused(refused), list[Problem](), list[NodeEntry]()
    for index, entry in _selectable(entries or (), where, faults, passed_over):
        own = _part(config, entry)
        merged = own if config.replaces else overlay(cluster, own) or own
        faulty = join(where, index) in faults
        found.append(NodeEntry(entry.name or "", entry.node_selector, merged, faulty))
    return Layers(cluster, tuple(found), refused, tuple(passed_over))


def _strategy(
    config: ConfigKey, text: Any, labels: Mapping[str, str], path: str, problems: list[Problem]
) -> Section:
    """Raises ProtocolError where the text is no document at all; what is wrong in it is added to
    ``problems``."""
    layers = read_layers(config, text, path, config.defaults, strict=True)
    problems += layers.refused + layers.passed_over
    chosen = (each.strategy for each in layers.entries if matches(each.selector, labels))
    return next(chosen, layers.cluster)


def _part(config: ConfigKey, document: Section) -> Section:
    """The strategy's own fields of a document or entry that extends it."""
    return config.strategy(
        **{name: getattr(document, name) for name in config.strategy.__struct_fields__}
    )


def _selectable(
    entries: tuple[Any, ...], path: str, refused: Refused, problems: list[Problem]
) -> list[tuple[int, Any]]:
    """The entries whose selector can be read, by their index; what is wrong with the others is
    added to ``problems``."""
    found = []
    for index, entry in enumerate(entries):
        where = join(join(path, index), "nodeSelector")
        if entry is msgspec.UNSET or where in refused:
            continue
        if entry.node_selector is None:
            problems.append(Problem(where, "is missing: without it the entry matches no node"))
        elif wrong := tuple(selector_problems(entry.node_selector, where)):
            problems += wrong
        else:
            found.append((index, entry))
    return found


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
    spec, problems = load_slo_partly(document, node_labels, path)
    if problems:
        raise ProtocolError(problems)
    return spec


def load_slo_partly(
    document: Any, node_labels: Mapping[str, str], path: str = "$"
) -> tuple[NodeSLOSpec, tuple[Problem, ...]]:
    """As ``load_slo``: what can be read, and all problems found."""
    if not isinstance(document, dict):
        return NodeSLOSpec(), (Problem(path, "must be a NodeSLO, its spec, or a ConfigMap"),)
    problems: list[Problem] = []
    try:
        kind = _kind(document, path)
    except ProtocolError as error:
        return NodeSLOSpec(), error.problems
    if kind:
        inner, allowed = _ENVELOPES[kind]
        problems += (
            Problem(join(path, key), f"unknown key of a {kind}", nearest(key, allowed))
            for key in document
            if key not in allowed
        )
        if not isinstance(document.get(inner), dict):
            what = "must be an object" if inner in document else "is missing"
            return NodeSLOSpec(), (*problems, Problem(join(path, inner), what))
        document, path = document[inner], join(path, inner)
    if kind != "ConfigMap" and not (not kind and any(map(_looks_like_config_key, document))):
        spec, refused = decode_partly(NodeSLOSpec, document, strict=True, path=path)
        return spec, (*problems, *refused)
    fields: dict[str, Any] = {}
    for key, strategy in _strategies(document, node_labels, path, problems).items():
        if field := CONFIG_KEYS[key].slo_field:
            fields[field] = (
                strategy.applications if isinstance(strategy, HostApplications) else strategy
            )
    return NodeSLOSpec(**fields), tuple(problems)


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
