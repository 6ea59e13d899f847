"""What of the node belongs to no pod and no application (docs/reference/metrics.md 2.9).

Uses what the collectors before it told the round, so it runs last; without the node's or the
pods' figures of this very round it gives nothing.
"""

from __future__ import annotations

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round
from koordlet.decision import metrics


def rest(whole: float | None, *parts: float | None) -> float | None:
    """``whole`` minus ``parts``, at least 0; None when one of them was not measured."""
    if whole is None:
        return None
    for part in parts:
        if part is None:
            return None
        whole -= part
    return max(whole, 0.0)


class SystemCollector:
    name = "system"
    optional = False

    def __init__(self, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s

    def collect(self, round_: Round) -> None:
        totals = round_.totals
        cpu = rest(totals.node_cpu_cores, totals.pods_cpu_cores, totals.applications_cpu_cores)
        if cpu is not None:
            round_.add(metrics.SYS_CPU_USAGE, (), cpu)
            numa_sum = sum(totals.numa_cpu_cores.values())
            for numa, cores in totals.numa_cpu_cores.items():
                share = cpu * cores / numa_sum if numa_sum > 0 else 0.0
                round_.add(metrics.SYS_NUMA_CPU_USAGE, (str(numa),), share)
        memory = rest(
            totals.node_memory_bytes, totals.pods_memory_bytes, totals.applications_memory_bytes
        )
        if memory is not None:
            round_.add(metrics.SYS_MEMORY_USAGE, (), memory)
        if totals.groups_numa_memory_bytes is not None:
            for numa, used in totals.numa_memory_bytes.items():
                ours = totals.groups_numa_memory_bytes.get(numa, 0.0)
                round_.add(metrics.SYS_NUMA_MEMORY_USAGE, (str(numa),), max(used - ours, 0.0))

    def close(self) -> None:
        """Keeps nothing."""


COLLECTOR = CollectorPart(
    name=SystemCollector.name,
    help="Use by neither pods nor applications.",
    options=CollectorOptions(),
    make=lambda _, options: SystemCollector(options.interval_seconds),
    metrics=(
        metrics.SYS_CPU_USAGE,
        metrics.SYS_MEMORY_USAGE,
        metrics.SYS_NUMA_CPU_USAGE,
        metrics.SYS_NUMA_MEMORY_USAGE,
    ),
)
