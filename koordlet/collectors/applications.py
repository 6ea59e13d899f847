"""CPU and memory of host applications (docs/reference/metrics.md 2.10)."""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round, SeriesStore
from koordlet.collectors.usage import GroupUsage, Kinds, Wanted
from koordlet.decision import metrics
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host

_KINDS = Kinds(
    metrics.HOST_APPLICATION_CPU_USAGE,
    metrics.HOST_APPLICATION_MEMORY_USAGE,
    metrics.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
)


def disjoint(applications: Iterable[Application], pods: Iterable[Pod]) -> frozenset[str]:
    """Names of the applications whose use may be added up with that of the pods.

    Left out: one inside another application or a pod (its use is in theirs), and one that
    contains a pod. Of two with the same cgroup the first by name counts.
    """
    taken = {pod.cgroup for pod in pods}
    above_pods = {parent for cgroup in taken for parent in _ancestors(cgroup)}
    counted = set()
    for application in sorted(applications, key=lambda app: (app.cgroup.count("/"), app.name)):
        cgroup = application.cgroup
        if (
            cgroup in taken
            or cgroup in above_pods
            or any(parent in taken for parent in _ancestors(cgroup))
        ):
            continue
        taken.add(cgroup)
        counted.add(application.name)
    return frozenset(counted)


def _ancestors(cgroup: str) -> list[str]:
    parts = cgroup.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


class ApplicationsCollector:
    name = "applications"
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
        self._groups = GroupUsage(host, cgroups, files, store, _KINDS, raw_page_cache=True)
        self._seen: tuple[tuple[Application, ...], tuple[Pod, ...]] | None = None

    def follow(self, pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> None:
        self._keep(pods, applications)
        self._groups.look()

    def collect(self, round_: Round) -> None:
        self._keep(round_.pods, round_.applications)
        sums = self._groups.read(round_)
        round_.totals.applications_cpu_cores, round_.totals.applications_memory_bytes = sums

    def close(self) -> None:
        self._groups.close()
        self._seen = None

    def _keep(self, pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> None:
        if self._seen is None or applications is not self._seen[0] or pods is not self._seen[1]:
            counted = disjoint(applications, pods)
            self._groups.keep(
                Wanted(app.name, app.cgroup, app.name in counted)
                for app in applications
                if app.present
            )
            self._seen = (applications, pods)


COLLECTOR = CollectorPart(
    name=ApplicationsCollector.name,
    help="CPU and memory of host applications.",
    options=CollectorOptions(),
    make=lambda machine, options: ApplicationsCollector(
        machine.host, machine.cgroups, machine.files, machine.store, options.interval_seconds
    ),
    metrics=(
        metrics.HOST_APPLICATION_CPU_USAGE,
        metrics.HOST_APPLICATION_MEMORY_USAGE,
        metrics.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
    ),
)
