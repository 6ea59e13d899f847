"""CPU and memory of containers (docs/reference/metrics.md 2.6, 2.13)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round, SeriesStore
from koordlet.collectors.usage import GroupUsage, Kinds, Wanted
from koordlet.decision import metrics
from koordlet.decision.snapshot import Pod
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host

_CONTAINER_KINDS = Kinds(
    metrics.CONTAINER_CPU_USAGE,
    metrics.CONTAINER_MEMORY_USAGE,
    metrics.CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE,
)

# Nobody acts on the memory of a container within seconds.
_CONTAINER_MEMORY_ROUNDS = 10


class ContainersCollector:
    """Apart from the pods, because it is two thirds of the work and may be shed."""

    name = "containers"
    optional = True

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
            host, cgroups, files, store, _CONTAINER_KINDS, memory_rounds=_CONTAINER_MEMORY_ROUNDS
        )
        self._pods: tuple[Pod, ...] | None = None

    def collect(self, round_: Round) -> None:
        if round_.pods is not self._pods:
            self._groups.keep(
                Wanted(container.id, container.cgroup, counted=False, pod=pod.uid)
                for pod in round_.pods
                for container in pod.containers
            )
            self._pods = round_.pods
        self._groups.read(round_)

    def close(self) -> None:
        self._groups.close()
        self._pods = None


COLLECTOR = CollectorPart(
    name=ContainersCollector.name,
    help="CPU and memory of containers.",
    options=CollectorOptions(),
    make=lambda machine, options: ContainersCollector(
        machine.host, machine.cgroups, machine.files, machine.store, options.interval_seconds
    ),
    metrics=(
        metrics.CONTAINER_CPU_USAGE,
        metrics.CONTAINER_MEMORY_USAGE,
        metrics.CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE,
    ),
)
