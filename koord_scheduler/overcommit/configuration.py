"""``slo-controller-config`` as the manager holds it (docs/reference/protocol.md 5,
docs/reference/central.md 1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from koordlet.protocol import slo_defaults
from koordlet.protocol.colocation import (
    COLOCATION_DEFAULTS,
    CPU_NORMALIZATION_DEFAULTS,
    RESOURCE_AMPLIFICATION_DEFAULTS,
    ColocationStrategy,
    CPUNormalizationStrategy,
    ResourceAmplificationStrategy,
)
from koordlet.protocol.configmap import CONFIG_KEYS, ConfigKey, HostApplications, read_layers
from koordlet.protocol.configmap import Layers as ReadLayers
from koordlet.protocol.errors import Problem, ProtocolError, Refused
from koordlet.protocol.limits import MESSAGE_CHARACTERS, PROBLEMS_PER_KEY
from koordlet.protocol.selector import LabelSelector, matches
from koordlet.protocol.slo import (
    CPUBurstStrategy,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    Section,
    SystemStrategy,
)
from koordlet.protocol.validate import validate

S = TypeVar("S", bound=Section)

NAMESPACE = "koordinator-system"
NAME = "slo-controller-config"
COLOCATION_REFUSED = "ColocationCfgUnmarshalFailed"
SECTION_REFUSED = "SLOCfgUnmarshalFailed"
COLOCATION = "colocation-config"
KEY_OF_FIELD = {
    "colocation": COLOCATION,
    "threshold": "resource-threshold-config",
    "qos": "resource-qos-config",
    "cpu_burst": "cpu-burst-config",
    "system": "system-config",
    "applications": "host-application-config",
    "normalization": "cpu-normalization-config",
    "amplification": "resource-amplification-config",
}
"""Field of `Configuration` to the key of the ConfigMap."""
DEFAULTS: dict[str, Section] = {
    COLOCATION: COLOCATION_DEFAULTS,
    "resource-threshold-config": msgspec.structs.replace(
        slo_defaults.DEFAULTS.resource_used_threshold_with_be or ResourceThresholdStrategy(),
        cpu_suppress_policy="cpuset",
    ),
    "resource-qos-config": ResourceQOSStrategy(),
    "cpu-burst-config": slo_defaults.DEFAULTS.cpu_burst_strategy or CPUBurstStrategy(),
    "system-config": slo_defaults.DEFAULTS.system_strategy or SystemStrategy(),
    "host-application-config": HostApplications(),
    "cpu-normalization-config": CPU_NORMALIZATION_DEFAULTS,
    "resource-amplification-config": RESOURCE_AMPLIFICATION_DEFAULTS,
}
"""What the manager lays its keys over; koordlet adds the defaults of the QoS classes (5.1, 1)."""


@dataclass(frozen=True)
class Entry(Generic[S]):
    """A node entry, already laid over the cluster layer."""

    name: str
    selector: LabelSelector
    strategy: S


@dataclass(frozen=True)
class Layers(Generic[S]):
    """What one key says: for the cluster, and for the nodes that an entry selects. ``from_config``:
    the key is there; else these are the defaults."""

    cluster: S
    entries: tuple[Entry[S], ...] = ()
    from_config: bool = False


@dataclass(frozen=True)
class Outcome:
    """What loading found at one key. ``reason`` is the reason of the event; it is a warning where
    ``refused``: the previous value of the key, or of a part of it, stays. Else a remark."""

    key: str
    reason: str
    message: str
    refused: bool


@dataclass(frozen=True)
class Configuration:
    """``colocation`` is None until it could be read once: nothing is reconciled before. ``error``:
    what ``colocation`` holds is not what the ConfigMap says; NodeMetric specs then stay. Two are
    equal where they have the same effect, whatever their ``outcomes``."""

    colocation: Layers[ColocationStrategy] | None
    error: bool
    threshold: Layers[ResourceThresholdStrategy]
    qos: Layers[ResourceQOSStrategy]
    cpu_burst: Layers[CPUBurstStrategy]
    system: Layers[SystemStrategy]
    applications: Layers[HostApplications]
    normalization: Layers[CPUNormalizationStrategy]
    amplification: Layers[ResourceAmplificationStrategy]
    outcomes: tuple[Outcome, ...] = field(default=(), compare=False)


def load(data: Mapping[str, str] | None, before: Configuration | None) -> Configuration:
    """``data`` of the ConfigMap, None where there is no such object. ``before``: what was in force,
    which stays for a key that cannot be read. ``outcomes`` are those of this text alone."""
    outcomes: list[Outcome] = []
    fields: dict[str, Any] = {}
    for name, key in KEY_OF_FIELD.items():
        kept = getattr(before, name) if before is not None else None
        found, refused = _section(key, data, outcomes)
        fields[name] = found if found is not None else kept
        if name == "colocation":
            fields["error"] = refused or data is None
        elif fields[name] is None:
            fields[name] = Layers(DEFAULTS[key])
    return Configuration(**fields, outcomes=tuple(outcomes))


def select(layers: Layers[S], labels: Mapping[str, str]) -> S:
    """The strategy of a node with ``labels``: that of the first entry which selects it."""
    for entry in layers.entries:
        if matches(entry.selector, labels):
            return entry.strategy
    return layers.cluster


def _section(
    key: str, data: Mapping[str, str] | None, outcomes: list[Outcome]
) -> tuple[Layers[Any] | None, bool]:
    """The layers of a key, None where the previous ones stay; and whether anything was refused."""
    config, defaults = CONFIG_KEYS[key], DEFAULTS[key]
    if data is None or key not in data or (config.empty_is_default and not data[key]):
        return Layers(defaults), False
    reason = COLOCATION_REFUSED if key == COLOCATION else SECTION_REFUSED
    path = f"$.{key}"
    try:
        layers = read_layers(config, data[key], path, defaults, strict=False)
        remarks = _remarks(config, data[key], path)
    except ProtocolError as error:
        outcomes.append(Outcome(key, reason, _message(error.problems), refused=True))
        return None, True
    refused = [*layers.refused, *_broken_rules(layers, path)]
    entries = layers.entries
    if key == COLOCATION:
        # A bad entry costs itself alone: it becomes a copy of the cluster layer (5.1, 5).
        inside = tuple(p for p in refused if p.path.lower().startswith(f"{path}.nodeconfigs["))
        refused = [problem for problem in refused if problem not in inside]
        remarks = (*remarks, *inside)
        entries = tuple(
            each._replace(strategy=layers.cluster) if each.faulty else each for each in entries
        )
    if refused:
        outcomes.append(Outcome(key, reason, _message(refused), refused=True))
        return None, True
    if remarks or layers.passed_over:
        message = _message((*remarks, *layers.passed_over))
        outcomes.append(Outcome(key, reason, message, refused=False))
    found = tuple(Entry(each.name, each.selector, each.strategy) for each in entries)
    return Layers(layers.cluster, found, from_config=True), False


def _remarks(config: ConfigKey, text: str, path: str) -> tuple[Problem, ...]:
    """Unknown and repeated keys, which are passed over: they may be of a later version."""
    known = set(read_layers(config, text, path, None, strict=False).refused)
    every = read_layers(config, text, path, None, strict=True).refused
    return tuple(problem for problem in every if problem not in known)


def _broken_rules(layers: ReadLayers, path: str) -> Iterator[Problem]:
    """Of the merged values, which koordlet would refuse."""
    faults = Refused(layers.refused)
    yield from validate(layers.cluster, f"{path}.clusterStrategy", faults)
    for index, entry in enumerate(layers.entries):
        yield from validate(entry.strategy, f"{path}.nodeStrategies[{index}]", faults)


def _message(problems: Iterable[Problem]) -> str:
    lines = [str(problem) for problem in problems]
    more = len(lines) - PROBLEMS_PER_KEY
    shown = [line[:MESSAGE_CHARACTERS] for line in lines[:PROBLEMS_PER_KEY]]
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])
