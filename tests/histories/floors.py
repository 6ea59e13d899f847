"""Floors and ceilings that hold at any time (invariant 8 of docs/design.md)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.engine.engine import HOOKS_EVERY_S
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.pause.model import covering
from koordlet.protocol.cpuset import parse_cpulist
from tests.histories.broken import check
from tests.histories.machine import APPLICATIONS, CPUS, MEMORY_BYTES
from tests.histories.pods import Pod
from tests.histories.policies import FAST, minimum_percent

if TYPE_CHECKING:
    from tests.histories.history import History

SETTLED_S = 3.0
"""So long after trouble what it prevented is made up for."""


def check_floors(history: History) -> None:
    """LS keeps what it asked for, BE its minimum; sums and orders hold."""
    machine = history.machine
    for pod in machine.pods.values():
        if not pod.is_best_effort:
            for cgroup in pod.cgroups:
                _keeps_what_it_asked_for(history, cgroup, pod)
    for name in machine.apps:
        if APPLICATIONS[name] != "BE":
            _keeps_what_it_asked_for(history, name, None)
    _protection(history)
    _cpusets(history)
    _quotas(history)
    if history.settled_s >= SETTLED_S and history.daemon.alive:
        _best_effort_minimum(history)


def _keeps_what_it_asked_for(history: History, cgroup: str, pod: Pod | None) -> None:
    machine = history.machine
    real, twin = Values(machine.cgroups, cgroup), Values(machine.twin_cgroups, cgroup)
    now = machine.real.monotonic()
    settled_s = HOOKS_EVERY_S + SETTLED_S if history.policy.fast else SETTLED_S
    if any(f"/{cgroup}/" in path and now < s + settled_s for path, s in machine.poked_s.items()):
        return  # once it is written over, before it is what is asked for
    asked = pod.facts.resources if pod is not None else None
    where = f"{cgroup} ({pod.qos if pod else 'application'})"
    quota = twin.cores
    if asked is not None and asked.limit_cpu_milli is not None:
        quota = min(quota, asked.limit_cpu_milli / 1000)
    if history.policy.fast:
        quota /= FAST
    check(real.cores >= quota - 1e-6, f"{where}: CPU limit {real.cores}, asked for {quota}")
    shares = twin.number(Resource.CPU_SHARES)
    if asked is not None and asked.request_cpu_milli is not None:
        shares = min(shares, asked.request_cpu_milli * 1024 / 1000)
    found = real.number(Resource.CPU_SHARES)
    check(found >= 0.95 * shares - 40, f"{where}: shares {found}, asked for {shares}")
    limit = twin.number(Resource.MEMORY_LIMIT)
    if asked is not None and asked.limit_memory_bytes is not None:
        limit = min(limit, asked.limit_memory_bytes)
    found = real.number(Resource.MEMORY_LIMIT)
    check(found >= limit, f"{where}: memory limit {found}, asked for {limit}")
    high = twin.number(Resource.MEMORY_HIGH)
    request = asked.request_memory_bytes if asked is not None else None
    # A pod that grows while its files are out of sight has to wait.
    if request is not None and not history.trouble_on(Resource.MEMORY_HIGH):
        found = real.number(Resource.MEMORY_HIGH)
        check(
            found >= min(high, request) // 4096 * 4096,
            f"{where}: memory.high {found}, asked for {request}",
        )
    for resource in (Resource.CPU_IDLE, Resource.FREEZE):
        check(
            real.number(resource, 0) <= twin.number(resource, 0),
            f"{where}: {resource} is {real.number(resource, 0)}",
        )


def _protection(history: History) -> None:
    """The sums that koordlet promises, at the top of each tree of them."""
    machine = history.machine
    for resource in (Resource.MEMORY_MIN, Resource.MEMORY_LOW):
        if history.trouble_on(resource):
            continue
        total, tops = 0.0, set[str]()
        for cgroup in sorted(machine.known_cgroups()):
            value = Values(machine.cgroups, cgroup).number(resource, 0)
            own = Values(machine.twin_cgroups, cgroup).number(resource, 0)
            if not value or value == own or any(cgroup.startswith(f"{t}/") for t in tops):
                continue
            # What is somebody else's above bounds what is protected, whatever it says itself.
            if not machine.is_below_poked(machine.knobs.path(cgroup, resource)):
                tops.add(cgroup)
                total += value
        check(
            total <= MEMORY_BYTES,
            f"{resource}: {total / (1 << 20):.0f} MiB promised, {sorted(tops)}",
        )


def _cpusets(history: History) -> None:
    machine, pauses = history.machine, history.daemon.engine.pausing.pauses.current
    is_v2 = "cpuset" not in machine.cgroups.layout.v1
    for cgroup in machine.known_cgroups():
        own = Values(machine.cgroups, cgroup).text(Resource.CPUSET_CPUS)
        if not own or own == Values(machine.twin_cgroups, cgroup).text(Resource.CPUSET_CPUS):
            continue
        if is_v2 and covering(pauses, "", cgroup) is not None:
            continue  # it went back; v2 lets it lie outside
        above = cgroup.rpartition("/")[0]
        while above:
            around = Values(machine.cgroups, above).text(Resource.CPUSET_CPUS)
            if around:
                path = machine.knobs.path(above, Resource.CPUSET_CPUS)
                check(
                    parse_cpulist(own) <= parse_cpulist(around)
                    or path in machine.poked_s
                    or history.trouble_on(Resource.CPUSET_CPUS),
                    f"{cgroup}: CPUs {own} are not inside {around} of {above}",
                )
                break
            above = above.rpartition("/")[0]


def _quotas(history: History) -> None:
    """A burst is no more than its quota; on v1 a child has no more than its parent."""
    machine = history.machine
    for cgroup in machine.known_cgroups():
        values = Values(machine.cgroups, cgroup)
        quota, burst = values.number(Resource.CPU_QUOTA_US), values.number(Resource.CPU_BURST_US, 0)
        check(burst <= quota, f"{cgroup}: burst {burst} us, quota {quota} us")
        above = cgroup.rpartition("/")[0]
        if above and machine.layout != "v2":
            around = Values(machine.cgroups, above).cores
            check(
                values.cores <= around + 1e-6 or values.cores == float("inf"),
                f"{cgroup}: {values.cores} CPUs, {above} has {around}",
            )


def _best_effort_minimum(history: History) -> None:
    """Of pods and applications of best effort together."""
    percent = minimum_percent(history.policy)
    if not percent or history.policy.observe or history.daemon.restored or history.policy.rival:
        return
    machine, pauses = history.machine, history.daemon.engine.pausing.pauses.current
    groups = [machine.best_effort, *(a for a in machine.apps if APPLICATIONS[a] == "BE")]
    if any(f"/{group}/" in path for group in groups for path in machine.poked_s):
        return
    if any(covering(pauses, "cpu-suppress", group) is not None for group in groups):
        return
    found = 0.0
    for values in (Values(machine.cgroups, group) for group in groups):
        cpus = parse_cpulist(values.text(Resource.CPUSET_CPUS_EFFECTIVE))
        found += min(values.cores, len(cpus) or CPUS)
    least = percent * CPUS / 100
    check(found >= least - 0.01, f"best effort has {found} CPUs, promised {least}: {groups}")


class Values:
    """Values of one cgroup for comparisons: what is missing or unlimited counts as infinite."""

    def __init__(self, cgroups: Cgroups, cgroup: str) -> None:
        self._cgroups = cgroups
        self._cgroup = cgroup

    def text(self, resource: Resource) -> str:
        found = self._read(resource)
        return "" if found is None else str(found)

    def number(self, resource: Resource, missing: float = float("inf")) -> float:
        found = self._read(resource)
        if found is None:
            return missing
        return float("inf") if found == UNLIMITED else float(found)

    @property
    def cores(self) -> float:
        return self.number(Resource.CPU_QUOTA_US) / self.number(Resource.CPU_PERIOD_US, 100_000)

    def _read(self, resource: Resource) -> Value | None:
        with suppress(OSError, Unsupported, ValueError):
            return self._cgroups.read(self._cgroup, resource)
        return None
