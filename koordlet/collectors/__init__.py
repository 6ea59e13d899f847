"""Collectors: each reads one thing of the kernel and adds samples to the store. Floor 4."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koordlet.collectors.base import Collector, CollectorPart, Machine
from koordlet.decision.metrics import Metric
from koordlet.decision.part import declared
from koordlet.prediction.part import SERIES

MODULES = (
    "node",
    "pods",
    "containers",
    "applications",
    "be",
    "throttled",
    "devices.gpu",
    "devices.rdma",
    "devices.xpu",
    "resctrl",
    "numa",
    "psi",
    "waits.run_queue",
    "waits.memory",
    "waits.block",
    "waits.interrupts",
    "cpi.part",
    "cold.collector",
    "self_usage",
    "identity",
    "system",
)
"""In the order in which they run; each declares its ``COLLECTOR``. What is over the CPU budget is
shed from the end: cold memory, CPI, interrupts, waits, pressure, NUMA memory, resctrl, devices,
containers. The system's share comes last, being what the others leave."""

COLLECTORS: dict[str, CollectorPart[Any]] = declared(__name__, MODULES, "COLLECTOR", CollectorPart)


CATALOGUE: dict[str, Metric] = {
    metric.kind: metric
    for metric in (*(each for part in COLLECTORS.values() for each in part.metrics), *SERIES)
}
"""Every series that a collector of ours, or prediction, may write, by kind."""


def collectors(parts: Iterable[CollectorPart[Any]], machine: Machine) -> list[Collector]:
    """Those that ``parts`` declare, with their options."""
    return [part.make(machine, part.options) for part in parts]
