"""CPU and memory of pods (docs/reference/metrics.md 2.6, 2.13)."""

from __future__ import annotations

import math

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round, SeriesStore
from koordlet.collectors.usage import GroupUsage, Kinds, Wanted
from koordlet.decision import metrics
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host

_POD_KINDS = Kinds(
    metrics.POD_CPU_USAGE, metrics.POD_MEMORY_USAGE, metrics.POD_MEMORY_USAGE_WITH_PAGE_CACHE
)

# Who asks for a pod's newest memory accepts two seconds (docs/reference/qos.md 1.6).
_POD_MEMORY_ROUNDS = 2


class PodsCollector:
    """Reads every pod's cgroup, whatever its phase: one that has ended has none."""

    name = "pods"
    optional = False

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        files: Descriptors,
        store: SeriesStore,
        interval_s: float = 1.0,
    ) -> None:
        self.interval_s = interval_s
        self._groups = GroupUsage(
            host, cgroups, files, store, _POD_KINDS, memory_rounds=_POD_MEMORY_ROUNDS
        )
        self._pods: tuple[Pod, ...] | None = None
        self.fresh_memory_from = math.inf
        """Share of the node's memory from which on the memory of all pods is read in each round:
        somebody may have to be chosen by it."""

    def follow(self, pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> None:
        self._keep(pods)
        self._groups.look()

    def collect(self, round_: Round) -> None:
        self._keep(round_.pods)
        needed_bytes = self.fresh_memory_from * round_.node.memory_bytes
        tight = (round_.totals.node_memory_bytes or 0) >= needed_bytes
        sums = self._groups.read(round_, all_memory=tight)
        round_.totals.pods_cpu_cores, round_.totals.pods_memory_bytes = sums
        round_.pods_cpu_ns = self._groups.counters()

    def close(self) -> None:
        self._groups.close()
        self._pods = None

    def _keep(self, pods: tuple[Pod, ...]) -> None:
        if pods is not self._pods:
            self._groups.keep(Wanted(pod.uid, pod.cgroup) for pod in pods)
            self._pods = pods


COLLECTOR = CollectorPart(
    name=PodsCollector.name,
    help="CPU and memory of pods.",
    options=CollectorOptions(),
    make=lambda machine, options: PodsCollector(
        machine.host, machine.cgroups, machine.files, machine.store, options.interval_seconds
    ),
    metrics=(
        metrics.POD_CPU_USAGE,
        metrics.POD_MEMORY_USAGE,
        metrics.POD_MEMORY_USAGE_WITH_PAGE_CACHE,
    ),
)
