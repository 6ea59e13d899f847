"""Strategies: each a pure function from a snapshot to a plan. Floor 4."""

from __future__ import annotations

from koordlet.decision.strategy import Strategy
from koordlet.qos import (
    blkio_qos,
    cpu_burst,
    cpu_evict,
    cpu_suppress,
    memory_evict,
    memory_qos,
    resctrl_qos,
    system_knobs,
)

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        cpu_suppress.STRATEGY,
        cpu_burst.STRATEGY,
        memory_qos.STRATEGY,
        resctrl_qos.STRATEGY,
        cpu_evict.STRATEGY,
        memory_evict.STRATEGY,
        blkio_qos.STRATEGY,
        system_knobs.STRATEGY,
    )
}
"""Every strategy there is, by name, in the order in which they run."""
