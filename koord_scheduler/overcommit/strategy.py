"""The colocation strategy of one node: ConfigMap, then annotation, then labels
(docs/reference/central.md
1.2, docs/reference/protocol.md 2.6, 5.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from koord_scheduler.overcommit.configuration import Layers, select
from koordlet.protocol import limits
from koordlet.protocol.colocation import ColocationStrategy
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.merge import overlay
from koordlet.protocol.verdicts import decoder

STRATEGY_ANNOTATION = "node.koordinator.sh/colocation-strategy"
FIELD_OF_LABEL = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpu_reclaim_threshold_percent",
    "node.koordinator.sh/memory-reclaim-ratio": "memory_reclaim_threshold_percent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "mid_static_cpu_reserved_percent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "mid_static_memory_reserved_percent",
}
_MOST_PERCENT = {
    field: 100 if field.startswith("mid_") else 100_000 for field in FIELD_OF_LABEL.values()
}
_NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_strategy = decoder(ColocationStrategy, limits.NODE.values)


def node_strategy(
    layers: Layers[ColocationStrategy], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[ColocationStrategy, tuple[str, ...]]:
    """The strategy in force, and what is wrong with the node's annotation and labels, which then do
    not count. A cluster that is switched off has no node that is switched on."""
    problems: list[str] = []
    found = select(layers, labels)
    text = annotations.get(STRATEGY_ANNOTATION)
    if text:
        try:
            if len(text) > limits.NODE.characters:
                raise ProtocolError(f"has more than {limits.NODE.characters} characters")
            found = overlay(found, _strategy(text)) or found
        except ProtocolError as error:
            problems.append(
                f"annotation {STRATEGY_ANNOTATION}: {str(error)[: limits.MESSAGE_CHARACTERS]}"
            )
    if ratios := _ratios(labels, problems):
        found = msgspec.structs.replace(found, **ratios)
    if found.enable and not layers.cluster.enable:
        found = msgspec.structs.replace(found, enable=False)
    return found, tuple(problems)


def _ratios(labels: Mapping[str, str], problems: list[str]) -> dict[str, int]:
    """Percent by field; a ratio is cut off to whole percent, not rounded."""
    found = {}
    for label, field in FIELD_OF_LABEL.items():
        text = labels.get(label)
        if text is None:
            continue
        percent = float(text) * 100 if _NUMBER.fullmatch(text) else -1.0
        if 0 <= percent <= _MOST_PERCENT[field]:
            found[field] = int(percent)
        else:
            most = _MOST_PERCENT[field] // 100
            problems.append(f"label {label}: {text[:63]!r} is no number from 0 to {most}")
    return found
