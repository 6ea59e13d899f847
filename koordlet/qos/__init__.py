"""Strategies: each a pure function from a snapshot to a plan. Floor 4."""

from __future__ import annotations

from koordlet.decision.strategy import Strategy
from koordlet.qos import resctrl_qos, system_knobs
from koordlet.qos.blkio import strategy as blkio_qos
from koordlet.qos.cpu_burst import strategy as cpu_burst
from koordlet.qos.cpu_suppress import strategy as cpu_suppress
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.qos.memory_qos import strategy as memory_qos

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
