"""Keys of the NodeSLO as parts declare what switches them on
(docs/reference/protocol.md, NodeSLO)."""

from __future__ import annotations

from koordlet.decision.part import Switch

THRESHOLDS = "slo.resourceUsedThresholdWithBE"
CLASSES = "slo.resourceQOSStrategy"
CPU_BURST = "slo.cpuBurstStrategy"
SYSTEM = "slo.systemStrategy"
BANDWIDTH = f"{SYSTEM}.totalNetworkBandwidth"

QOS = ("lsrClass", "lsClass", "beClass")

BEST_EFFORT_LIMITED = (Switch(f"{THRESHOLDS}.enable"),)
"""The one switch of CPU suppress and of both evictions."""


def of_classes(block: str, *classes: str) -> tuple[Switch, ...]:
    """The block of any of these classes."""
    return tuple(Switch(f"{CLASSES}.{name}.{block}.enable") for name in classes)


def thresholds(*names: str) -> tuple[Switch, ...]:
    """Any of these percentages is set."""
    return tuple(Switch(f"{THRESHOLDS}.{name}", example="") for name in names)


def policy(name: str, value: str) -> tuple[Switch, ...]:
    """The node's policy has this value."""
    return (Switch(f"{CLASSES}.policies.{name}", value=f'"{value}"'),)


def below(prefix: str, *patterns: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{pattern}" for pattern in patterns)
