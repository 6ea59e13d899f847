"""CPU and memory of the node, CPU by NUMA node (docs/reference/metrics.md 2.3, 2.13)."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round
from koordlet.decision import metrics
from koordlet.kernel.cgroup.conversions import USER_HZ
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host
from koordlet.kernel.parse import CpuTicks, meminfo, proc_stat


class _Look(NamedTuple):
    at_s: float
    ticks: CpuTicks


class NodeCollector:
    """CPU and memory are read apart: one that fails does not take the other with it."""

    name = "node"
    optional = False

    def __init__(
        self, host: Host, files: Descriptors, interval_s: float = 1.0, proc_root: str = "/proc"
    ) -> None:
        self.interval_s = interval_s
        self._host = host
        self._files = files
        self._stat = f"{proc_root}/stat"
        self._meminfo = f"{proc_root}/meminfo"
        self._last: _Look | None = None

    def collect(self, round_: Round) -> None:
        """Raises when neither CPU nor memory can be read."""
        problems = []
        for read in (self._cpu, self._memory):
            try:
                read(round_)
            except (OSError, ValueError) as error:
                problems.append(error)
        if len(problems) == 2:
            raise ExceptionGroup("neither CPU nor memory of the node can be read", problems)
        for problem in problems:
            round_.skipped.append(str(problem))

    def close(self) -> None:
        self._files.forget(self._stat)
        self._files.forget(self._meminfo)
        self._last = None

    def _cpu(self, round_: Round) -> None:
        ticks = proc_stat(self._files.read(self._stat), self._stat)
        now = _Look(self._host.monotonic(), ticks)
        last, self._last = self._last, now
        if last is None or now.at_s <= last.at_s or ticks.node < last.ticks.node:
            return
        per_core = (now.at_s - last.at_s) * USER_HZ
        cores = (ticks.node - last.ticks.node) / per_core
        round_.add(metrics.NODE_CPU_USAGE, (), cores)
        round_.totals.node_cpu_cores = cores
        round_.totals.numa_cpu_cores = by_numa(
            last.ticks,
            ticks,
            per_core,
            {cpu.id: cpu.numa for cpu in round_.node.topology.cpus},
        )
        for numa, used in round_.totals.numa_cpu_cores.items():
            round_.add(metrics.NODE_NUMA_CPU_USAGE, (str(numa),), used)

    def _memory(self, round_: Round) -> None:
        info = meminfo(self._files.read(self._meminfo), self._meminfo)
        with_cache = info.total_bytes - info.free_bytes
        round_.add(metrics.NODE_MEMORY_USAGE_WITH_PAGE_CACHE, (), with_cache)
        if info.available_bytes is not None:
            used = info.total_bytes - info.available_bytes
            round_.add(metrics.NODE_MEMORY_USAGE, (), used)
            round_.totals.node_memory_bytes = used


def by_numa(
    last: CpuTicks, now: CpuTicks, ticks_per_core: float, numa_of: dict[int, int]
) -> dict[int, float]:
    """Cores used on each NUMA node. A CPU that is new, unknown to the topology, or counts
    backwards adds nothing."""
    used: defaultdict[int, float] = defaultdict(float)
    for cpu, ticks in now.cpus.items():
        before = last.cpus.get(cpu)
        if before is not None and ticks >= before and cpu in numa_of:
            used[numa_of[cpu]] += (ticks - before) / ticks_per_core
    return dict(used)


COLLECTOR = CollectorPart(
    name=NodeCollector.name,
    help="CPU and memory of the node.",
    options=CollectorOptions(),
    make=lambda machine, options: NodeCollector(
        machine.host, machine.files, options.interval_seconds, machine.proc_root
    ),
    metrics=(
        metrics.NODE_CPU_USAGE,
        metrics.NODE_MEMORY_USAGE,
        metrics.NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
        metrics.NODE_NUMA_CPU_USAGE,
    ),
)
