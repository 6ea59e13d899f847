"""Who makes latency-sensitive work wait for a CPU, and how long its tasks wait (eBPF on the
scheduler's tracepoints; ``docs/concepts/blame.md``)."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Mapping
from concurrent.futures import Future

from koordlet.collectors.base import (
    SLACK_S,
    CollectorPart,
    Round,
    SeriesStore,
    SlowCollectorOptions,
    series_of,
)
from koordlet.collectors.waits.figures import QUANTILES, quantile_us
from koordlet.collectors.waits.groups import Kind
from koordlet.collectors.waits.series import MatrixSeries
from koordlet.collectors.waits.suspicion import Suspicion
from koordlet.collectors.waits.watcher import Look, Subjects, Watcher
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.run_queue import NoRunQueueError
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

FEATURE = "bpf-run-queue"
BCC_FEATURE = "bcc-run-queue"
"""How long tasks wait, and not for whom; where the kernel has no BTF."""
CLOSE_S = 10.0
"""For so long after an alarm, or a suspicion, a reading is taken each second."""
AT_ONCE_S = 0.1
"""The most that a round waits for the first reading of trouble; a later one comes with the next."""
JUST_BEFORE_S = 0.25
"""A reading each second is made so long before the round that takes it: it is fresh then."""
TRY_AGAIN_S = 600.0
"""After so long it is tried again what the machine lacked: a package may have been installed."""
_COST = "who makes latency-sensitive work wait for a CPU is not known (koordlet blame)"
_NO_MATRIX = (
    "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF); through BCC it is measured how long tasks of "
    "a container wait (histogram alone), not who makes whom wait"
)
_NEW_KERNEL = "use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later"
_REMEDIES = {
    errno.ENOENT: f"install libbpf1, and {_NEW_KERNEL}",
    errno.EPERM: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
    errno.EACCES: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
}


class WaitsCollector:
    name = "waits"
    optional = True
    interval_s = 1.0
    """What was read in the background comes with the next round."""

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        self._host = host
        self._layout = layout
        self._store = store
        self._read_every_s = read_every_s
        self._background = host.background(self.name)
        self._watcher: Watcher | None = None
        self._job: Future[Look | None] | None = None
        self._due_s = -math.inf
        self._close_until_s = -math.inf
        self._suspicion = Suspicion()
        self._pods = MatrixSeries(store, metrics.POD_CPU_WAIT, metrics.POD_CPU_WAIT_TOTAL)
        self._applications = MatrixSeries(
            store, metrics.HOST_APPLICATION_CPU_WAIT, metrics.HOST_APPLICATION_CPU_WAIT_TOTAL
        )
        self._latencies: dict[tuple[str, str], int] = {}
        self.capabilities: tuple[Capability, ...] = ()
        self.costs: dict[str, Cost] = {}

    def alarm(self) -> None:
        """Latency-sensitive work suffers now."""
        self._look_closely(self._host.monotonic())

    def collect(self, round_: Round) -> None:
        """Raises OSError where the kernel refused a reading."""
        if self._job is not None:
            if not self._job.done():
                return
            job, self._job = self._job, None
            self._take(job, round_)
        subjects = round_.pods, round_.applications
        if self._watcher is not None and self._suspicion.arises(
            round_.now_s, self._watcher.others_ns()
        ):
            if round_.now_s >= self._close_until_s:
                self._look_at_once(subjects, round_)
            self._look_closely(round_.now_s)
        if self._job is None and round_.now_s >= self._due_s - SLACK_S:
            closely = round_.now_s < self._close_until_s
            self._due_s = round_.now_s + (self.interval_s if closely else self._read_every_s)
            self._job = self._background.submit(
                lambda pause: self._open(pause).look(subjects, pause),
                delay_s=self.interval_s - JUST_BEFORE_S if closely else 0.0,
            )
        elif self._job is None and self._watcher is not None and self._watcher.measuring:
            self._job = self._background.submit(self._measure)

    def _look_at_once(self, subjects: Subjects, round_: Round) -> None:
        """The first second of trouble counts already. Costs this round some milliseconds."""
        recent = self._suspicion.recent
        job: Future[Look | None] = self._background.submit(
            lambda pause: self._open(pause).look(subjects, no_pause, recent)
        )
        with contextlib.suppress(TimeoutError):
            job.exception(timeout=AT_ONCE_S)
        if job.done():
            self._take(job, round_)
        else:
            self._job = job

    def _look_closely(self, now_s: float) -> None:
        self._close_until_s = now_s + CLOSE_S
        self._due_s = min(self._due_s, now_s)

    def close(self) -> None:
        self._background.close(self._shut)
        self._background = self._host.background(self.name)
        self._job = None
        self._due_s = -math.inf
        self._pods.close()
        self._applications.close()
        self._keep_latencies(frozenset())
        self.costs = {}

    def _open(self, pause: Pause) -> Watcher:
        """In the thread, as the two below."""
        if self._watcher is None:
            self._watcher = Watcher(self._host, self._layout, pause)
        return self._watcher

    def _measure(self, pause: Pause) -> None:
        self._open(pause).measure()

    def _shut(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _take(self, job: Future[Look | None], round_: Round) -> None:
        try:
            look = job.result()
        except OSError as error:
            if self._watcher is not None:
                raise
            self.capabilities = (_missing(error),)
            self._due_s = round_.now_s + TRY_AGAIN_S
            return
        if look is None:
            return
        self.costs = dict(look.costs)
        self.capabilities = _there(self.costs, has_matrix=look.has_matrix)
        for kind, series in ((Kind.POD, self._pods), (Kind.APPLICATION, self._applications)):
            found = {group.name: row for group, row in look.rows.items() if group.kind is kind}
            series.add(round_, found)
        self._add_latencies(look, round_)
        if look.unwatched:
            round_.skipped.append(f"{look.unwatched} cgroups are beyond the bound of watched ones")

    def _add_latencies(self, look: Look, round_: Round) -> None:
        self._keep_latencies(frozenset(look.slots))
        for container, slots in look.slots.items():
            for quantile, label in QUANTILES:
                value = quantile_us(slots, quantile)
                if value is not None:
                    round_.ids.append(self._latency(container, label))
                    round_.values.append(value)

    def _latency(self, container: str, quantile: str) -> int:
        key = container, quantile
        if key not in self._latencies:
            metric = metrics.CONTAINER_RUN_QUEUE_LATENCY
            self._latencies[key] = series_of(self._store, metric, key)
        return self._latencies[key]

    def _keep_latencies(self, containers: frozenset[str]) -> None:
        for key in tuple(self._latencies):
            if key[0] not in containers:
                self._store.release(self._latencies.pop(key))


def _there(costs: Mapping[str, Cost], *, has_matrix: bool) -> tuple[Capability, ...]:
    why = "attached programs to the scheduler's tracepoints"
    cores = sum(each.cores for each in costs.values())
    if costs:
        why = f"{why}; they use {100 * cores:.2f} % of a core"
    if has_matrix:
        return (Capability(FEATURE, True, why),)
    return (
        Capability(FEATURE, False, _NO_MATRIX, _COST, _NEW_KERNEL),
        Capability(BCC_FEATURE, True, f"compiled with BCC: {why}"),
    )


def _missing(error: OSError) -> Capability:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    why = f"{error.filename or FEATURE}: {name} ({error.strerror})"
    if isinstance(error, NoRunQueueError):
        return Capability(FEATURE, False, why, _COST, error.remedy)
    return Capability(FEATURE, False, why, _COST, _REMEDIES.get(error.errno or 0, ""))


COLLECTOR = CollectorPart(
    name=WaitsCollector.name,
    help="Who makes latency-sensitive work wait for a CPU (eBPF), each second while it suffers.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: WaitsCollector(
        machine.host, machine.cgroups.layout, machine.store, options.interval_seconds
    ),
    metrics=(
        metrics.POD_CPU_WAIT,
        metrics.POD_CPU_WAIT_TOTAL,
        metrics.HOST_APPLICATION_CPU_WAIT,
        metrics.HOST_APPLICATION_CPU_WAIT_TOTAL,
        metrics.CONTAINER_RUN_QUEUE_LATENCY,
    ),
)
