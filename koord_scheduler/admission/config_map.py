"""What ``slo-controller-config`` must not say, and which nodes its entries select
(docs/reference/protocol.md 6.8, 6.9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.admission.words import AdmissionError
from koordlet.protocol.configmap import CONFIG_KEYS, Layers, read_layers
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.selector import LabelSelector, Requirement, matches
from koordlet.protocol.slo import NetworkQOS, ResourceQOSStrategy, Section, SystemStrategy
from koordlet.protocol.slo_defaults import DEFAULTS
from koordlet.protocol.validate import validate

CHECKED = (
    "colocation-config",
    "resource-threshold-config",
    "resource-qos-config",
    "cpu-burst-config",
    "system-config",
)
PARSE_FAILED = "ParseConfigFail"
INVALID = "ConfigParamInvalid"
OVERLAP = "NodeStrategiesOverlap"
NODE_CONFLICT = "ExistNodeConfict"
"""As the reference spells it."""

Nodes = Mapping[str, Mapping[str, str]]
"""Name of a node -> its labels."""
_MOST_CHARACTERS = 1 << 20
"""An object of the API server has no more."""
MOST_ENTRIES = 256
"""Of one key: each is compared with each."""
_SHARED_CLASSES = ("lsr_class", "ls_class", "be_class")
_NAMES = {"lsr_class": "lsrClass", "ls_class": "lsClass", "be_class": "beClass"}


class Verdict(NamedTuple):
    """``warnings`` are shown to whoever writes the ConfigMap; they refuse nothing."""

    warnings: tuple[str, ...] = ()


def validate_config(
    data: Mapping[str, str],
    old: Mapping[str, str] | None,
    nodes: Nodes,
    *,
    names_needed: bool = False,
) -> Verdict:
    """``old`` None: the ConfigMap is new. A key is looked at where it is not empty and has changed.
    Raises AdmissionError, whose message begins with the reason."""
    warnings: list[str] = []
    for key in CHECKED:
        text = data.get(key, "")
        if not text or (old is not None and old.get(key, "") == text):
            continue
        layers = _read(key, text)
        warnings += _unknown_keys(key, text)
        if names_needed:
            _names(key, layers)
        problems = list(_broken_rules(key, layers))
        if key == "resource-qos-config":
            problems += _network(layers, data.get("system-config", ""))
        if problems:
            raise AdmissionError(f"{INVALID}: {_listed(problems)}")
        _no_overlap(key, layers)
        _no_conflict(key, layers, nodes)
    return Verdict(tuple(warnings))


def node_conflict(labels: Mapping[str, str], data: Mapping[str, str]) -> str:
    """Why a node with these labels falls under two entries of one key; empty where it does not.
    Keys that cannot be read are passed over."""
    for key in CHECKED:
        try:
            layers = _read(key, data[key]) if data.get(key) else None
        except AdmissionError:
            continue
        found = [
            index
            for index, each in enumerate(layers.entries if layers else ())
            if matches(each.selector, labels)
        ]
        if layers is not None and len(found) > 1:
            first, second = (_called(layers, index) for index in found[:2])
            return f"{NODE_CONFLICT}: {key}: the labels match {first} and {second}"
    return ""


def _read(key: str, text: str) -> Layers:
    config = CONFIG_KEYS[key]
    defaults = config.defaults
    # NodeSLO sections have their defaults elsewhere. Those of network QoS are not wanted: what
    # nobody wrote takes no part of the bandwidth.
    if key in ("resource-threshold-config", "cpu-burst-config"):
        defaults = getattr(DEFAULTS, config.slo_field)
    if len(text) > _MOST_CHARACTERS:
        raise AdmissionError(f"{PARSE_FAILED}: {key}: more than {_MOST_CHARACTERS} characters")
    try:
        layers = read_layers(config, text, key, defaults, strict=False)
    except ProtocolError as error:
        raise AdmissionError(f"{PARSE_FAILED}: {error}") from None
    if layers.refused:
        raise AdmissionError(f"{INVALID}: {_listed(layers.refused)}")
    if layers.passed_over:
        raise AdmissionError(f"{PARSE_FAILED}: {_listed(layers.passed_over)}")
    if len(layers.entries) > MOST_ENTRIES:
        raise AdmissionError(f"{INVALID}: {key}: more than {MOST_ENTRIES} node entries")
    for index, each in enumerate(layers.entries):
        if not each.selector.match_labels and not each.selector.match_expressions:
            where = f"{key}: {_called(layers, index)}"
            raise AdmissionError(f"{PARSE_FAILED}: {where}: nodeSelector is empty")
    return layers


def _unknown_keys(key: str, text: str) -> Iterator[str]:
    """Whoever mistypes a key believes in a value that nobody reads."""
    try:
        strict = read_layers(CONFIG_KEYS[key], text, key, None, strict=True)
    except ProtocolError:
        return
    for problem in strict.refused[:8]:
        yield f"{problem}; it is ignored"


def _listed(problems: tuple[Problem, ...] | list[Problem]) -> str:
    texts = [str(each) for each in problems[:8]]
    more = len(problems) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _names(key: str, layers: Layers) -> None:
    seen: set[str] = set()
    for index, each in enumerate(layers.entries):
        if not each.name:
            raise AdmissionError(f"{PARSE_FAILED}: {key}: entry {index} has no name")
        if each.name in seen:
            raise AdmissionError(f"{PARSE_FAILED}: {key}: two entries are called {each.name}")
        seen.add(each.name)


def _broken_rules(key: str, layers: Layers) -> Iterator[Problem]:
    """Between fields of what will be in force: the cluster's over the defaults, a node's over the
    cluster's."""
    yield from validate(layers.cluster, key)
    for index, each in enumerate(layers.entries):
        yield from validate(each.strategy, f"{key}: {_called(layers, index)}")


def _called(layers: Layers, index: int) -> str:
    return f"entry {layers.entries[index].name or index}"


def _network(layers: Layers, system_text: str) -> Iterator[Problem]:
    """What the classes are guaranteed together must be there."""
    system = _read("system-config", system_text) if system_text else None
    cluster_bits = _total_bits(system.cluster) if system else 0
    yield from _shares(layers.cluster, cluster_bits, "clusterStrategy")
    for index, each in enumerate(layers.entries):
        total_bits = cluster_bits
        for other in system.entries if system else ():
            if other.selector == each.selector:
                total_bits = _total_bits(other.strategy)
        yield from _shares(each.strategy, total_bits, _called(layers, index))


def _total_bits(strategy: Section) -> int:
    assert isinstance(strategy, SystemStrategy)
    return _bits(strategy.total_network_bandwidth or 0)


def _bits(value: int | str) -> int:
    return parse_quantity(value).value


def _shares(strategy: Section, total_bits: int, where: str) -> Iterator[Problem]:
    assert isinstance(strategy, ResourceQOSStrategy)
    path = f"resource-qos-config: {where}"
    classes = {name: getattr(strategy, name) for name in _SHARED_CLASSES}
    networks: dict[str, NetworkQOS] = {
        name: each.network_qos for name, each in classes.items() if each and each.network_qos
    }
    for field in ("ingress_request", "egress_request"):
        given = [getattr(each, field) for each in networks.values()]
        percent = sum(each for each in given if isinstance(each, int))
        bits = sum(_bits(each) for each in given if isinstance(each, str))
        names = ", ".join(_NAMES[name] for name in networks)
        word = field.replace("_", " ")
        if percent > 100:
            yield Problem(path, f"{word} of {names}: {percent} % together, more than 100")
        elif total_bits and bits + percent * total_bits // 100 > total_bits:
            text = f"{word} of {names}: more together than totalNetworkBandwidth ({total_bits})"
            yield Problem(path, text)


def _no_overlap(key: str, layers: Layers) -> None:
    entries = layers.entries
    for first in range(len(entries)):
        for second in range(first + 1, len(entries)):
            if overlap(entries[first].selector, entries[second].selector):
                names = f"{_called(layers, first)} and {_called(layers, second)}"
                raise AdmissionError(f"{OVERLAP}: {key}: {names} can select the same node")


def _no_conflict(key: str, layers: Layers, nodes: Nodes) -> None:
    if len(layers.entries) < 2:
        return
    for name, labels in nodes.items():
        found = [i for i, each in enumerate(layers.entries) if matches(each.selector, labels)]
        if len(found) > 1:
            names = f"{_called(layers, found[0])} and {_called(layers, found[1])}"
            raise AdmissionError(f"{NODE_CONFLICT}: {key}: node {name} matches {names}")


_ANY = "\0any"
"""Stands for a value that no selector names."""


def overlap(first: LabelSelector, second: LabelSelector) -> bool:
    """Whether a node that has just the labels which one selector asks for matches the other. Labels
    that a selector does not ask for may of course make both match; that is not counted."""
    return _covers(first, second) or _covers(second, first)


def _covers(asked: LabelSelector, other: LabelSelector) -> bool:
    """Whether ``other`` matches a node made after ``asked``. Keys do not depend on each other."""
    of_asked, of_other = _by_key(asked), _by_key(other)
    for key, requirements in of_asked.items():
        also = of_other.get(key, [])
        values = {value for each in (*requirements, *also) for value in each.values} | {_ANY}
        wanted = any(each.operator in ("In", "Exists") for each in requirements)
        choices: list[str | None] = [*values] if wanted else [None]
        if not any(_all_hold([*requirements, *also], each) for each in choices):
            return False
    rest = (each for key, found in of_other.items() if key not in of_asked for each in found)
    return all(_holds(each, None) for each in rest)


def _by_key(selector: LabelSelector) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for key, value in (selector.match_labels or {}).items():
        found.setdefault(key, []).append(Requirement(key, "In", (value,)))
    for each in selector.match_expressions:
        found.setdefault(each.key, []).append(each)
    return found


def _all_hold(requirements: list[Requirement], value: str | None) -> bool:
    return all(_holds(each, value) for each in requirements)


def _holds(requirement: Requirement, value: str | None) -> bool:
    labels = {} if value is None else {requirement.key: value}
    return matches(LabelSelector(match_expressions=(requirement,)), labels)


def data_of(tree: object) -> dict[str, str]:
    """``data`` of a ConfigMap. Raises AdmissionError."""

    class Shape(msgspec.Struct):
        data: dict[str, str] | None = None

    try:
        return msgspec.convert(tree, Shape).data or {}
    except msgspec.ValidationError as error:
        raise AdmissionError(f"the ConfigMap cannot be read: {error}") from None
