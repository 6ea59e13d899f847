"""How many processes an application has (Linux cgroups(7), cgroup.procs)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round
from koordlet.decision.metrics import Metric
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups

PROCESSES = Metric("host_app_processes", ("host_app_name",), "processes", "processes of its cgroup")


class ProcessesCollector:
    name = "processes"
    optional = True

    def __init__(self, cgroups: Cgroups, interval_s: float) -> None:
        self.interval_s = interval_s
        self._cgroups = cgroups

    def collect(self, round_: Round) -> None:
        for application in round_.applications:
            if not application.present:
                continue
            try:
                pids = self._cgroups.read_raw(application.cgroup, Resource.PROCS)
            except (OSError, ValueError) as error:
                round_.skip(application.cgroup, error)
                continue
            round_.add(PROCESSES, (application.name,), len(pids.split()))

    def close(self) -> None:
        """Nothing is kept open."""


COLLECTOR = CollectorPart(
    name=ProcessesCollector.name,
    help="Processes of each application.",
    options=CollectorOptions(),
    make=lambda machine, options: ProcessesCollector(machine.cgroups, options.interval_seconds),
    metrics=(PROCESSES,),
)
