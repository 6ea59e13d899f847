"""All collectors, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordlet.collectors.applications import ApplicationsCollector
from koordlet.collectors.base import Collector, SeriesStore
from koordlet.collectors.be import BestEffortCollector
from koordlet.collectors.node import NodeCollector
from koordlet.collectors.numa import NumaCollector
from koordlet.collectors.pods import ContainersCollector, PodsCollector
from koordlet.collectors.psi import PsiCollector
from koordlet.collectors.resctrl import ResctrlCollector
from koordlet.collectors.self_usage import SelfUsageCollector
from koordlet.collectors.system import SystemCollector
from koordlet.collectors.throttled import ThrottledCollector
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host

INTERVALS_S: Mapping[str, float] = {
    "node": 1.0,
    "pods": 1.0,
    "containers": 1.0,
    "applications": 1.0,
    "be": 1.0,
    "throttled": 1.0,
    "resctrl": 10.0,
    "numa": 10.0,
    "psi": 10.0,
    "self": 1.0,
    "system": 1.0,
}
"""Every collector, in the order they run, with its usual interval."""


def collectors(
    host: Host,
    cgroups: Cgroups,
    store: SeriesStore,
    intervals_s: Mapping[str, float] = INTERVALS_S,
    *,
    proc_root: str = "/proc",
    sys_root: str = "/sys",
) -> list[Collector]:
    """Those that ``intervals_s`` names.

    What is over the CPU budget is shed from the end: pressure, NUMA memory, resctrl,
    containers. The system's share comes last, being what the others leave.
    """
    files = Descriptors(host)
    make: dict[str, Callable[[float], Collector]] = {
        "node": lambda s: NodeCollector(host, files, s, proc_root),
        "pods": lambda s: PodsCollector(host, cgroups, files, store, s),
        "containers": lambda s: ContainersCollector(host, cgroups, files, store, s),
        "applications": lambda s: ApplicationsCollector(host, cgroups, files, store, s),
        "be": lambda s: BestEffortCollector(host, cgroups, files, s),
        "throttled": lambda s: ThrottledCollector(cgroups, files, store, s),
        "numa": lambda s: NumaCollector(host, cgroups, files, s, sys_root),
        "psi": lambda s: PsiCollector(cgroups, files, store, s, proc_root),
        "resctrl": lambda s: ResctrlCollector(host, s, sys_root),
        "self": lambda s: SelfUsageCollector(host, files, s, proc_root),
        "system": lambda s: SystemCollector(s),
    }
    return [make[name](intervals_s[name]) for name in INTERVALS_S if name in intervals_s]
