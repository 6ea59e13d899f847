"""Strategies: each a pure function from a snapshot to a plan. Floor 4."""

from __future__ import annotations

from koordlet.decision.part import declared
from koordlet.decision.strategy import AnyStrategy, Strategy

MODULES = (
    "cpu_means.strategy",
    "cpu_suppress.strategy",
    "cpu_spread",
    "cpu_burst.strategy",
    "memory_qos.strategy",
    "resctrl_qos",
    "resctrl_monitor",
    "evict.cpu_evict",
    "evict.memory_evict",
    "blkio.strategy",
    "system_knobs",
    "kidled",
    "interference.strategy",
)
"""In the order in which they run. Each declares its ``STRATEGY``."""

STRATEGIES: dict[str, AnyStrategy] = declared(__name__, MODULES, "STRATEGY", Strategy)
