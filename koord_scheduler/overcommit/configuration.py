"""``slo-controller-config`` as the manager holds it (spec/protocol.md 5, spec/central.md 1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from koordlet.protocol.colocation import (
    ColocationStrategy,
    CPUNormalizationStrategy,
    ResourceAmplificationStrategy,
)
from koordlet.protocol.configmap import HostApplications
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import (
    CPUBurstStrategy,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    Section,
    SystemStrategy,
)

S = TypeVar("S", bound=Section)

NAMESPACE = "koordinator-system"
NAME = "slo-controller-config"
COLOCATION_REFUSED = "ColocationCfgUnmarshalFailed"
SECTION_REFUSED = "SLOCfgUnmarshalFailed"


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
    what ``colocation`` holds is not what the ConfigMap says; NodeMetric specs then stay."""

    colocation: Layers[ColocationStrategy] | None
    error: bool
    threshold: Layers[ResourceThresholdStrategy]
    qos: Layers[ResourceQOSStrategy]
    cpu_burst: Layers[CPUBurstStrategy]
    system: Layers[SystemStrategy]
    applications: Layers[HostApplications]
    normalization: Layers[CPUNormalizationStrategy]
    amplification: Layers[ResourceAmplificationStrategy]
    outcomes: tuple[Outcome, ...] = ()


def load(data: Mapping[str, str] | None, before: Configuration | None) -> Configuration:
    """``data`` of the ConfigMap, None where there is no such object. ``before``: what was in force,
    which stays for a key that cannot be read. ``outcomes`` are those of this text alone."""
    raise NotImplementedError
