"""Taking a snapshot: everything a decision may look at, frozen at one instant."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.decision.metrics import Aggregate, Metric, Reading
from koordlet.decision.reads import Reads
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import DEFAULT_MEANS, Application, Means, Node, Pod, Snapshot, Wake
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.tsdb.store import Store

Originals = Callable[[str, Resource], Value | None]
"""What a file held before koordlet; None where it never wrote it."""


Others = Callable[[str, str, Resource], Value | None]
"""What all owners but one want of a file together; None where they want nothing."""


IsOurs = Callable[[str, Resource, Value], bool]
"""Whether that value in the file may come from koordlet."""


def _untouched(cgroup: str, resource: Resource) -> Value | None:
    return None


def _unwanted(owner: str, cgroup: str, resource: Resource) -> Value | None:
    return None


def _unwritten(cgroup: str, resource: Resource, value: Value) -> bool:
    return False


_Question = tuple[str, tuple[str, ...], float, Aggregate]


class TsdbView:
    """``MetricView`` of a store as of ``time_ms``; each pass over a window is made once.

    Samples that arrive later are outside its windows. ``labels`` must have a value for each
    label of the metric.
    """

    def __init__(self, store: Store, time_ms: int) -> None:
        self._store = store
        self._time_ms = time_ms
        self._answers: dict[_Question, Reading | None] = {}

    def read(
        self,
        metric: Metric,
        labels: tuple[str, ...] = (),
        *,
        window_s: float,
        aggregate: Aggregate = Aggregate.LAST,
    ) -> Reading | None:
        """Raises ValueError when the number of labels is not the metric's."""
        if aggregate is Aggregate.LAST:
            # What decisions ask for each pod at each tick: neither a pass over the window nor a
            # note of the answer, which costs as much as the answer.
            return self._newest(metric, labels, window_s)
        question = (metric.kind, labels, window_s, aggregate)
        if question not in self._answers:
            self._answers[question] = self._ask(metric, labels, window_s, aggregate)
        return self._answers[question]

    def newest(self, metric: Metric, *, window_s: float) -> dict[tuple[str, ...], Reading]:
        since_ms = self._time_ms - int(window_s * 1000)
        by_name = sorted(metric.labels)  # as the store orders them
        places = [by_name.index(name) for name in metric.labels]
        return {
            tuple([labels[place][1] for place in places]): Reading(
                value, (self._time_ms - time_ms) / 1000, 1, window_s
            )
            for labels, time_ms, value in self._store.newest(metric.kind, since_ms, self._time_ms)
        }

    def _newest(self, metric: Metric, labels: tuple[str, ...], window_s: float) -> Reading | None:
        series = self._series(metric, labels)
        if series is None:
            return None
        newest = self._store.last(series, self._time_ms - int(window_s * 1000), self._time_ms)
        if newest is None:
            return None
        return Reading(newest[1], (self._time_ms - newest[0]) / 1000, 1, window_s)

    def _ask(
        self, metric: Metric, labels: tuple[str, ...], window_s: float, aggregate: Aggregate
    ) -> Reading | None:
        series = self._series(metric, labels)
        if series is None:
            return None
        start_ms = self._time_ms - int(window_s * 1000)
        result = self._store.aggregate((series,), start_ms, self._time_ms, aggregate)
        if result is None or result.count == 0:
            return None
        age_s = (self._time_ms - result.last_ms) / 1000
        span_s = (result.last_ms - result.first_ms) / 1000
        return Reading(result.value, age_s, result.count, window_s, span_s)

    def _series(self, metric: Metric, labels: tuple[str, ...]) -> int | None:
        """Not ``Store.series``, which would make one for every pod that is asked about."""
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.kind} has labels {metric.labels}, asked with {labels}")
        return self._store.known(metric.kind, tuple(zip(metric.labels, labels, strict=True)))


class KernelView:
    """``InForce``: the kernel's own values, each file read at most once. ``reads``: what was asked
    so far, and the answers."""

    def __init__(
        self,
        knobs: Knobs,
        originals: Originals = _untouched,
        ours: IsOurs = _unwritten,
        others: Others = _unwanted,
    ) -> None:
        self._knobs = knobs
        self._others = others
        self._originals = originals
        self._ours = ours
        self.reads = Reads()
        self._values: dict[tuple[str, Resource], Value | None] = {}

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        found = self.reads.values[cgroup, resource] = self._value(cgroup, resource)
        return found

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        value = self._value(cgroup, resource)
        found = isinstance(value, int) and value >= least
        self.reads.reached[cgroup, resource, least] = found
        return found

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        found = self._originals(cgroup, resource)
        found = self._value(cgroup, resource) if found is None else found
        self.reads.originals[cgroup, resource] = found
        return found

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        wanted = self._others(owner, cgroup, resource)
        found = self.original(cgroup, resource) if wanted is None else wanted
        self.reads.withouts[owner, cgroup, resource] = found
        return found

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        value = self._value(cgroup, resource)
        found = value is not None and self._ours(cgroup, resource, value)
        self.reads.ours[cgroup, resource] = found
        return found

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        key, known = (cgroup, of), self.reads.children
        if key not in known:
            try:
                known[key] = self._knobs.children(cgroup, of)
            except (OSError, Unsupported):
                known[key] = ()
        return known[key]

    def _value(self, cgroup: str, resource: Resource) -> Value | None:
        key = cgroup, resource
        if key not in self._values:
            try:
                self._values[key] = self._knobs.read_often(cgroup, resource)
            except (OSError, ValueError, Unsupported):
                # Gone, not there, or not what the file should hold: nothing a decision can use.
                self._values[key] = None
        return self._values[key]


def take(
    host: Host,
    knobs: Knobs,
    store: Store,
    *,
    wake: Wake,
    node: Node,
    pods: tuple[Pod, ...],
    applications: tuple[Application, ...],
    slo: NodeSLOSpec | None,
    means: Means = DEFAULT_MEANS,
    collect_interval_s: float,
    sources_synced: bool,
    originals: Originals = _untouched,
    ours: IsOurs = _unwritten,
    others: Others = _unwanted,
) -> Snapshot:
    """The snapshot of now. It reads nothing itself: metrics and kernel values are looked up
    when a decision asks."""
    time_s = host.time()
    return Snapshot(
        now=host.monotonic(),
        time=time_s,
        wake=wake,
        node=node,
        pods=pods,
        applications=applications,
        slo=slo,
        metrics=TsdbView(store, int(time_s * 1000)),
        in_force=KernelView(knobs, originals, ours, others),
        collect_interval_s=collect_interval_s,
        sources_synced=sources_synced,
        means=means,
    )
