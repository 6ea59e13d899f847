"""CPU normalisation and amplification: ratios that the controller writes on nodes
(docs/reference/central.md 1.6, docs/reference/protocol.md 5.8, 5.9)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from koord_scheduler.model.facts import CPUModel, NodeFacts, TopologyFacts
from koord_scheduler.overcommit.configuration import Configuration, select
from koordlet.protocol import keys
from koordlet.protocol.colocation import CPUNormalizationStrategy, RatioModel
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import CPU

ENABLED_LABEL = "node.koordinator.sh/cpu-normalization-enabled"
NORMALIZATION_RATIO = keys.CPU_NORMALIZATION_RATIO.name
LEAST_RATIO, LARGEST_RATIO = 1.0, 5.0
_LEAST_CHANGE = 0.01
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class UnknownRatioError(ValueError):
    """The ratio of a node cannot be told; what stands there stays."""


def normalization_ratio(
    configuration: Configuration, node: NodeFacts, topology: TopologyFacts | None
) -> float:
    """1.0 where normalisation is off. Raises UnknownRatioError."""
    strategy = select(configuration.normalization, node.labels)
    if not _is_enabled(strategy, node.labels):
        return 1.0
    cpu = topology.cpu if topology is not None else None
    if cpu is None:
        raise UnknownRatioError(
            "CPU normalisation: the NodeResourceTopology has no annotation "
            "node.koordinator.sh/cpu-basic-info that can be read; koordlet writes it"
        )
    ratio = _ratio_of((strategy.ratio_model or {}).get(cpu.model), cpu)
    if ratio is None:
        ratio = strategy.default_ratio
    if ratio is None:
        raise UnknownRatioError(
            f"CPU normalisation: cpu-normalization-config has neither a ratio for CPU model "
            f"{cpu.model[:128]!r} nor a defaultRatio"
        )
    if not LEAST_RATIO <= ratio <= LARGEST_RATIO:
        raise UnknownRatioError(
            f"CPU normalisation: ratio {ratio} of CPU model {cpu.model[:128]!r} is not from "
            f"{LEAST_RATIO} to {LARGEST_RATIO}"
        )
    return ratio


def present_ratio(node: NodeFacts) -> float | None:
    """What the node's annotation says; None where it is missing or refused."""
    try:
        return keys.CPU_NORMALIZATION_RATIO.read(node.annotations)
    except ProtocolError:
        return None


def normalization_annotation(ratio: float, node: NodeFacts) -> str:
    """The text that should stand there: what stands there, where it differs by at most 0.01."""
    present = present_ratio(node)
    text = f"{ratio:.2f}"
    if present is not None and abs(present - float(text)) <= _LEAST_CHANGE + 1e-9:
        return node.annotations[NORMALIZATION_RATIO]
    return text


def amplification_annotation(
    configuration: Configuration, node: NodeFacts, normalization: float | None
) -> str | None:
    """JSON of ratios by resource, None where none applies. ``normalization``: None where it is not
    known."""
    strategy = select(configuration.amplification, node.labels)
    ratios = dict(strategy.resource_amplification_ratio or {}) if strategy.enable else {}
    if normalization is not None and normalization > 0:
        cpu = ratios.get(CPU, 1.0) * normalization
        if cpu > 1 or CPU in ratios:
            ratios[CPU] = cpu
    if not ratios:
        return None
    pairs = ",".join(f"{json.dumps(name)}:{ratios[name]:.2f}" for name in sorted(ratios))
    return "{" + pairs + "}"


def amplify(amount: int, ratio: float) -> int:
    """Rounded up; a ratio up to 1 changes nothing."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def _is_enabled(strategy: CPUNormalizationStrategy, labels: Mapping[str, str]) -> bool:
    text = labels.get(ENABLED_LABEL)
    if text is None:
        return bool(strategy.enable)
    if text not in _TRUE | _FALSE:
        raise UnknownRatioError(f"label {ENABLED_LABEL}: {text[:63]!r} is neither true nor false")
    return text in _TRUE


def _ratio_of(model: RatioModel | None, cpu: CPUModel) -> float | None:
    if model is None:
        return None
    if cpu.hyper_thread_enabled:
        if cpu.turbo_enabled:
            return model.hyper_thread_turbo_enabled_ratio
        return model.hyper_thread_enabled_ratio
    return model.turbo_enabled_ratio if cpu.turbo_enabled else model.base_ratio
