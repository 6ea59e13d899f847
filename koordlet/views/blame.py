"""``koordlet blame``: who made latency-sensitive work wait for what."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from koordlet.admin import blame as b
from koordlet.admin.daemon import InvalidError, Lookup, NotFoundError
from koordlet.collectors import COLLECTORS
from koordlet.collectors.runner import Runner
from koordlet.decision import metrics as k
from koordlet.decision.metrics import WAITS, Metric, WaitMetrics
from koordlet.decision.names import shown
from koordlet.decision.record import PodKind
from koordlet.decision.snapshot import Application, Pod
from koordlet.diagnosis.targets import completed, known_names
from koordlet.engine.engine import Engine
from koordlet.kernel.background import Pause, no_pause
from koordlet.tsdb.store import Store
from koordlet.views.usage import Usage

STEPS = 20
"""Parts of the window that a plot shows."""
LONGEST_S = 3600.0
_MOST_VICTIMS = 500


class Subject(NamedTuple):
    kind: PodKind
    id: str
    title: str
    qos: str
    containers: tuple[tuple[str, str], ...] = ()
    """(id, name) of each."""


class Series(NamedTuple):
    """Samples in order of time. Each is a mean since the one before."""

    times_ms: Sequence[int]
    values: Sequence[float]


def blame(engine: Engine, target: str, window_s: float) -> Lookup[b.BlameView]:
    """All victims, or one: a pod (uid or namespace/name) or an application. Raises NotFoundError
    and InvalidError."""
    if not 1 <= window_s <= LONGEST_S:
        raise InvalidError(f"a window of {window_s:g} s: give 1 to {LONGEST_S:g}")
    parts = engine.parts
    subjects = {
        each.id: each for each in subjects_of(parts.state.pods(), parts.state.applications())
    }
    wanted = None
    if target:
        titles = {each.title: each.id for each in subjects.values()}
        wanted = target if target in subjects else titles.get(completed(target, titles))
        if wanted is None:
            raise NotFoundError(
                f"{target!r} is no pod and no application; {known_names(target, sorted(titles))}"
            )
    missing = tuple(_missing(parts.runner))
    usage = Usage(engine)
    time_ms = int(parts.host.time() * 1000)

    def look_up(pause: Pause = no_pause) -> b.BlameView:
        usage.pause = pause
        look = _Look(parts.store, subjects, time_ms, int(window_s * 1000), pause)
        victims = look.victims(usage, wanted)
        return b.BlameView(time=time_ms / 1000, window_s=window_s, victims=victims, missing=missing)

    return look_up


def _missing(runner: Runner) -> Iterator[str]:
    """What is not measured, and why."""
    health = {each.name: each for each in runner.health()}
    for waits in WAITS:
        name = next(part.name for part in COLLECTORS.values() if waits.pod in part.metrics)
        what = f"waits for {waits.resource}"
        if name not in health:
            yield f"{what}: the collector {name} is switched off"
        elif health[name].shed:
            yield f"{what}: the collector {name} is shed, because koordlet is over its budget"
        elif health[name].error:
            yield f"{what}: the collector {name} fails: {health[name].error}"
        elif health[name].missing:
            yield f"{what}: {health[name].missing}"
    for each in runner.capabilities():
        if not each.supported and each.feature.startswith("bpf-"):
            yield f"{each.feature}: {each.why}" + (f"; {each.remedy}" if each.remedy else "")


def subjects_of(pods: Iterable[Pod], applications: Iterable[Application]) -> Iterator[Subject]:
    for pod in pods:
        title = f"{pod.namespace}/{pod.name}" if pod.name else pod.uid
        containers = tuple((each.id, each.name) for each in pod.containers)
        yield Subject(PodKind.POD, pod.uid, shown(title), pod.qos, containers)
    for application in applications:
        name = application.name
        yield Subject(PodKind.APPLICATION, name, name, application.qos or "")


class _Look:
    def __init__(
        self,
        store: Store,
        subjects: Mapping[str, Subject],
        end_ms: int,
        window_ms: int,
        pause: Pause,
    ) -> None:
        self._store = store
        self._subjects = subjects
        self._end_ms = end_ms
        self._start_ms = end_ms - window_ms
        self._pause = pause

    def victims(self, usage: Usage, wanted: str | None) -> tuple[b.VictimView, ...]:
        stalls: dict[str, list[b.StallView]] = {}
        for kind in WAITS:
            for victim, stall in self._stalls(kind, wanted):
                stalls.setdefault(victim, []).append(stall)
        latencies = self._latencies()
        used = {key[0]: value for key, value in usage.latest(k.POD_CPU_USAGE).items()}
        used |= {key[0]: n for key, n in usage.latest(k.HOST_APPLICATION_CPU_USAGE).items()}
        found = []
        for victim, subject in self._subjects.items():
            waits = stalls.get(victim, [])
            run_queue = [
                _latency(container, name, latencies[container])
                for container, name in subject.containers
                if container in latencies and wanted in (None, victim)
            ]
            if waits or run_queue:  # through BCC there is the second alone
                found.append(
                    b.VictimView(
                        kind=subject.kind,
                        id=victim,
                        title=subject.title,
                        qos=subject.qos,
                        cpu_cores=used.get(victim),
                        stalls=tuple(waits),
                        run_queue=tuple(run_queue),
                    )
                )
        found.sort(key=lambda each: -sum(stall.ms_per_s for stall in each.stalls))
        return tuple(found[:_MOST_VICTIMS])

    def _stalls(self, kind: WaitMetrics, wanted: str | None) -> Iterator[tuple[str, b.StallView]]:
        for cells, totals in ((kind.pod, kind.pod_total), (kind.application, kind.app_total)):
            victim_label = totals.labels[0]
            match = {victim_label: wanted} if wanted is not None else {}
            rows: dict[str, dict[tuple[str, str], Series]] = {}
            for labels, series in self._series(cells, match):
                culprit = labels["culprit_kind"], labels["culprit"]
                rows.setdefault(labels[victim_label], {})[culprit] = series
            processes = {
                (labels["culprit_kind"], labels["culprit"]): shown(labels["process"])
                for labels, _ in self._series(kind.process, {})
            }
            for labels, total in self._series(totals, match):
                victim = labels[victim_label]
                row = rows.get(victim, {})
                plotted = wanted is not None
                yield victim, self._stall(kind.resource, total, row, processes, plotted=plotted)

    def _series(
        self, metric: Metric, match: Mapping[str, str]
    ) -> Iterator[tuple[dict[str, str], Series]]:
        for series in self._store.select(metric.kind, match):
            self._pause()
            try:
                labels = dict(self._store.describe(series)[1])
                points = self._store.points(series, self._start_ms, self._end_ms)
            except KeyError:  # gone since it was selected
                continue
            if points.times:
                yield labels, Series(points.times, points.values)

    def _stall(
        self,
        resource: str,
        total: Series,
        row: Mapping[tuple[str, str], Series],
        processes: Mapping[tuple[str, str], str],
        *,
        plotted: bool,
    ) -> b.StallView:
        weights = weights_ms(total.times_ms, self._start_ms)
        mean = mean_of(total, total.times_ms, weights)
        culprits = []
        for (kind, name), series in row.items():
            value = mean_of(series, total.times_ms, weights)
            if value <= 0:
                continue
            subject = self._subjects.get(name)
            title = subject.title if subject is not None else shown(name)
            process = processes.get((kind, name))
            culprits.append(
                b.CulpritView(
                    kind=kind,
                    id=name,
                    title=f"{title} ({process})" if process else title,
                    qos=subject.qos if subject is not None else "",
                    ms_per_s=value,
                    share=min(value / mean, 1.0) if mean > 0 else 0.0,
                    recent_ms_per_s=self._steps(series) if plotted else (),
                )
            )
        culprits.sort(key=lambda each: -each.ms_per_s)
        return b.StallView(resource=resource, ms_per_s=mean, culprits=tuple(culprits))

    def _steps(self, series: Series) -> tuple[float, ...]:
        """One value for each part of the window: that of the sample which covers its middle."""
        step = (self._end_ms - self._start_ms) / STEPS
        found = []
        for number in range(STEPS):
            middle = self._start_ms + (number + 0.5) * step
            place = bisect_right(series.times_ms, middle)
            within = place < len(series.times_ms)
            found.append(max(series.values[place], 0.0) if within else 0.0)
        return tuple(found)

    def _latencies(self) -> dict[str, dict[str, float]]:
        """By container and quantile, the highest reading: a quantile of the whole window is not
        above it."""
        found: dict[str, dict[str, float]] = {}
        for labels, series in self._series(k.CONTAINER_RUN_QUEUE_LATENCY, {}):
            found.setdefault(labels["container_id"], {})[labels["quantile"]] = max(series.values)
        return found


def _latency(container: str, name: str, quantiles: Mapping[str, float]) -> b.LatencyView:
    return b.LatencyView(
        container=container,
        name=name,
        p50_us=quantiles.get("p50"),
        p95_us=quantiles.get("p95"),
        p99_us=quantiles.get("p99"),
    )


LONGEST_SAMPLE_MS = 10_000


def weights_ms(times_ms: Sequence[int], start_ms: int) -> list[int]:
    """For how long each sample stands: since the one before it. There is one each second during
    trouble, else every ten."""
    before = start_ms
    found = []
    for time_ms in times_ms:
        found.append(min(max(time_ms - before, 1), LONGEST_SAMPLE_MS))
        before = time_ms
    return found


def mean_of(series: Series, times_ms: Sequence[int], weights: Sequence[int]) -> float:
    """Weighted by time. Where others have a sample and this series has none, it is 0."""
    values = dict(zip(series.times_ms, series.values, strict=True))
    whole = sum(weights)
    if not whole:
        return 0.0
    return sum(values.get(t, 0.0) * w for t, w in zip(times_ms, weights, strict=True)) / whole
