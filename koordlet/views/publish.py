"""The metrics page's gauges, brought up to date when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet import __version__
from koordlet.decision import metrics as k
from koordlet.decision.conflicts import CPUS, DEVICES, conflicts
from koordlet.decision.family import Family, Labels
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Wake
from koordlet.engine import cookies
from koordlet.engine.engine import Engine
from koordlet.hooks.cpu_pools import be_share_pools, cpus_of, share_pools
from koordlet.kernel.parse import Pressure
from koordlet.pause.model import Scope
from koordlet.report import metrics as r
from koordlet.report.registry import Histogram
from koordlet.views import prediction_page, stalls, tiers, waits
from koordlet.views.cluster import publish_cluster, publish_node_metric
from koordlet.views.cold import publish_cold
from koordlet.views.nri_view import publish_nri
from koordlet.views.publish_devices import publish_devices
from koordlet.views.usage import Usage
from koordlet.views.views import Views

READINGS_AT_ONCE = 20
"""Readings, of one group each, between two pauses: some 2 ms."""
_PRECISIONS = ("avg10", "avg60", "avg300")


def publish(engine: Engine, views: Views) -> None:
    """All steps at once."""
    for _ in steps(engine, views):
        pass


def steps(engine: Engine, views: Views) -> Iterator[None]:
    """Bring the gauges up to date, some milliseconds at a time. What counts itself (decisions,
    alarms, durations) is not touched here."""
    usage = Usage(engine)
    _node(engine, usage)
    yield
    yield from _workloads(engine, usage)
    yield from _resctrl(engine, usage)
    _hooks(engine)
    yield
    tiers.publish(engine.parts.metrics, engine.node().allocatable, engine.parts.state.pods())
    _strategies(engine, views)
    now_s = engine.parts.host.monotonic()
    prediction_page.publish(engine.parts.metrics, engine.parts.predictions, now_s)
    yield
    _health(engine, views)


def _node(engine: Engine, usage: Usage) -> None:
    metrics = engine.parts.metrics
    for family, metric in (
        (r.NODE_USED_CPU_CORES, k.NODE_CPU_USAGE),
        (r.NODE_USED_MEMORY_BYTES, k.NODE_MEMORY_USAGE),
    ):
        metrics.replace(family, usage.latest(metric))
    be_milli = usage.latest(k.NODE_BE).get(("cpu", "usage"))
    be_used: dict[Labels, float] = {} if be_milli is None else {(): be_milli / 1000}
    metrics.replace(r.BE_SUPPRESS_BE_USED_CPU_CORES, be_used)


def _workloads(engine: Engine, usage: Usage) -> Iterator[None]:
    parts = engine.parts
    pods = {pod.uid: _names(pod) for pod in parts.state.pods()}
    containers = {
        container.id: (container.id, container.name, *pods[pod.uid])
        for pod in parts.state.pods()
        for container in pod.containers
    }
    applications = {each.name: (each.name,) for each in parts.state.applications()}
    yield from _pressure(engine, usage, pods, containers, applications)
    yield
    publish_devices(engine, usage, pods, containers, applications)
    yield
    shares: tuple[tuple[Family, k.Metric, Mapping[str, Labels]], ...] = (
        (r.POD_CPU_THROTTLED, k.POD_CPU_THROTTLED, pods),
        (r.CONTAINER_CPU_THROTTLED, k.CONTAINER_CPU_THROTTLED, containers),
        (r.HOST_APPLICATION_CPU_THROTTLED, k.HOST_APPLICATION_CPU_THROTTLED, applications),
    )
    for family, metric, subjects in shares:
        ratios = usage.latest(metric).items()
        parts.metrics.replace(
            family, {subjects[label]: value for (label,), value in ratios if label in subjects}
        )
        yield
    yield from waits.publish(engine, usage, pods, containers)
    yield from stalls.publish(engine, usage, pods, containers)
    _cpi(engine, usage, containers)
    yield from publish_cold(parts.metrics, usage, pods, containers, applications)
    used: dict[tuple[str, ...], float] = {}
    for application in parts.state.applications():
        priority, qos = application.priority_class or "", application.qos or ""
        for resource, metric in (
            ("cpu", k.HOST_APPLICATION_CPU_USAGE),
            ("memory", k.HOST_APPLICATION_MEMORY_USAGE),
        ):
            value = usage.latest(metric).get((application.name,))
            if value is not None:
                used[application.name, resource, priority, qos] = value
    parts.metrics.replace(r.HOST_APPLICATION_RESOURCE_USAGE, used)


def _pressure(
    engine: Engine,
    usage: Usage,
    pods: Mapping[str, Labels],
    containers: Mapping[str, Labels],
    applications: Mapping[str, Labels],
) -> Iterator[None]:
    """A container's 18 series are there where its pressure is measured."""
    metrics = engine.parts.metrics
    shown: dict[k.Metric, tuple[Family, Mapping[str, Labels]]] = {
        k.POD_PSI: (r.POD_PSI, pods),
        k.CONTAINER_PSI: (r.CONTAINER_PSI, containers),
        k.HOST_APPLICATION_PSI: (r.HOST_APPLICATION_PSI, applications),
    }
    metrics.replace(r.CONTAINER_PSI, {})
    samples: dict[Family, dict[Labels, float]] = {family: {} for family, _ in shown.values()}
    for number, (metric, labels, pressures) in enumerate(engine.parts.runner.pressure(shown)):
        if number % READINGS_AT_ONCE == READINGS_AT_ONCE - 1:
            yield
        family, subjects = shown[metric]
        if labels[-1] in subjects:
            _add_pressure(samples[family], subjects[labels[-1]], pressures)
    for family, found in samples.items():
        metrics.replace(family, found)
        yield
    node = usage.latest(k.NODE_PSI, slow=True)
    metrics.replace(
        r.NODE_PSI,
        {(kind, f"avg{seconds}", degree): n for (kind, seconds, degree), n in node.items()},
    )


def _cpi(engine: Engine, usage: Usage, containers: Mapping[str, Labels]) -> None:
    """Of the last window."""
    engine.parts.metrics.replace(
        r.CONTAINER_CPI,
        {
            (*containers[container], f"{resource}s"): value
            for (_, container, resource), value in usage.counted().items()
            if container in containers
        },
    )


def _resctrl(engine: Engine, usage: Usage) -> Iterator[None]:
    metrics = engine.parts.metrics
    occupied = usage.latest(k.RESCTRL_LLC, slow=True).items()
    metrics.replace(r.RESCTRL_LLC_OCCUPANCY, {(cache, qos): n for (qos, cache), n in occupied})
    traffic = usage.latest(k.RESCTRL_MB, slow=True).items()
    by_cache: dict[Labels, float] = {(c, qos, kind): n for (qos, c, kind), n in traffic}
    metrics.replace(r.RESCTRL_MEMORY_BANDWIDTH, by_cache)
    rates = usage.latest(k.RESCTRL_MB_RATE, slow=True).items()
    by_cache = {(cache, qos, kind): n for (qos, cache, kind), n in rates}
    metrics.replace(r.RESCTRL_MEMORY_TRAFFIC, by_cache)
    uncounted = usage.latest(k.RESCTRL_UNCOUNTED, slow=True)
    metrics.replace(r.RESCTRL_UNCOUNTED_GROUPS, dict(uncounted))
    yield
    pods = {pod.uid: _names(pod) for pod in engine.parts.state.pods()}
    held = usage.latest(k.POD_RESCTRL_LLC, slow=True).items()
    found: dict[Labels, float] = {(c, *pods[uid]): n for (uid, c), n in held if uid in pods}
    metrics.replace(r.POD_LLC_OCCUPANCY, found)
    yield
    rates = usage.latest(k.POD_RESCTRL_MB_RATE, slow=True).items()
    found = {(c, kind, *pods[uid]): n for (uid, c, kind), n in rates if uid in pods}
    metrics.replace(r.POD_MEMORY_TRAFFIC, found)


def _hooks(engine: Engine) -> None:
    """What hooks see and want that is no value of a cgroup."""
    metrics, snapshot = engine.parts.metrics, engine.snapshot(Wake())
    for cores, info, pools in (
        (r.CPUSET_SHARE_POOL_CPU_CORES, r.CPUSET_SHARE_POOL_INFO, share_pools(snapshot)),
        (r.CPUSET_BE_SHARE_POOL_CPU_CORES, r.CPUSET_BE_SHARE_POOL_INFO, be_share_pools(snapshot)),
    ):
        cpus = cpus_of(pools)
        metrics.set(cores, float(len(cpus)))
        metrics.replace(info, {(str(cpu),): 1.0 for cpu in cpus})
    taken: dict[Labels, float] = {(CPUS,): 0.0, (DEVICES,): 0.0}
    for conflict in conflicts(snapshot.pods):
        taken[(conflict.kind,)] += 1
    metrics.replace(r.ALLOCATION_CONFLICTS, taken)
    owners = {c.cgroup: (pod, c) for pod in snapshot.pods for c in pod.containers}
    scores: dict[Labels, float] = {}
    wanted = [each for decision in engine.wanted for each in decision.plan.settings]
    cookies.publish(metrics, wanted, owners, engine.parts.knobs.cookies)
    for setting in wanted:
        if setting.resource is Resource.OOM_SCORE_ADJ and setting.cgroup in owners:
            pod, container = owners[setting.cgroup]
            scores[*_names(pod), container.name] = float(setting.value)
    metrics.replace(r.CONTAINER_OOM_SCORE_ADJ, scores)


def _strategies(engine: Engine, views: Views) -> None:
    metrics = engine.parts.metrics
    states = views.standings.states().items()
    metrics.replace(r.STRATEGY_STATE, {(name, state.value): 1.0 for name, state in states})
    failing: dict[Labels, float] = {}
    failures: dict[Labels, float] = {}
    for each in engine.runs.values():
        if each.error:
            failing[each.name, each.error.partition(":")[0]] = 1.0
        if each.failures:
            failures[(each.name,)] = each.failures
    metrics.replace(r.STRATEGY_FAILING, failing)
    metrics.replace(r.STRATEGY_FAILURES, failures)


def _names(pod: Pod) -> tuple[str, str, str]:
    return pod.uid, pod.name, pod.namespace


def _add_pressure(
    samples: dict[Labels, float], subject: Labels, found: Mapping[str, Pressure]
) -> None:
    """Three averages of ``some``, and of ``full`` where the kernel has such a line."""
    for resource, pressure in found.items():
        supported = "true" if pressure.full is not None else "false"
        for degree, line in (("some", pressure.some), ("full", pressure.full)):
            if line is not None:
                for precision in _PRECISIONS:
                    labels = (*subject, resource, precision, degree, supported)
                    samples[labels] = getattr(line, precision)


def _health(engine: Engine, views: Views) -> None:
    parts, metrics = engine.parts, engine.parts.metrics
    status = views.status()
    own = status.own
    gauges: dict[Family, float] = {
        r.START_TIME: status.started,
        r.READY: status.ready,
        r.CONFLICTS: len(status.conflicts),
        r.REFUSED_INPUTS: len(status.refused_inputs),
        r.PROBLEMS: len(status.problems),
        r.TSDB_SERIES: status.tsdb.series,
        r.TSDB_MEMORY_BYTES: status.tsdb.memory_bytes,
        r.TSDB_DISK_BYTES: status.tsdb.disk_bytes,
        r.TSDB_SEGMENTS: status.tsdb.segments,
        r.TSDB_DAMAGED_SEGMENTS: status.tsdb.damaged_segments,
        r.TSDB_ON_DISK: not status.tsdb.error,
        r.INPUTS_LOG_BYTES: parts.inputs.log.bytes if parts.inputs is not None else 0,
        r.INPUTS_FRAMES_LOST: parts.inputs.log.lost if parts.inputs is not None else 0,
        r.DECISION_LOG_DROPPED: status.decision_log.dropped,
        r.JOURNAL_ENTRIES: status.journal.entries,
        r.JOURNAL_DAMAGED: bool(status.journal.damage),
        r.JOURNAL_HEALTHY: status.journal.healthy,
        r.OWN_CPU_CORES: own.cpu_cores,
        r.OWN_RSS_BYTES: own.rss_bytes,
        r.OWN_OPEN_FILES: own.open_files,
        r.CONFIG_RELOAD_SUCCESS: not status.config.error,
    }
    for family, value in gauges.items():
        metrics.set(family, float(value))
    pauses = engine.pausing.pauses.current
    everything: dict[Labels, float] = {(Scope().title,): 0.0}  # there for alerts at any time
    metrics.replace(r.PAUSED, everything | {(each.scope.title,): 1.0 for each in pauses})
    metrics.replace(r.VERDICT, {(status.verdict.state,): 1.0})
    metrics.replace(r.BUILD_INFO, {(__version__,): 1.0})
    metrics.replace(r.CAPABILITY, {(c.feature,): float(c.supported) for c in status.capabilities})
    metrics.replace(r.SOURCE_SYNCED, {(s.name,): float(s.synced) for s in status.sources})
    if views.nri_status is not None:
        publish_nri(metrics, views.nri_status)
    if status.cluster.enabled:
        publish_cluster(parts, status.cluster, views.joined)
        publish_node_metric(parts, views.joined.status if views.joined is not None else None)
    for refusal, count in views.refused_connections.items():
        metrics.set(r.ADMIN_REFUSED_CONNECTIONS, count, (refusal,))
    collectors = status.collectors
    metrics.replace(r.COLLECTOR_DURATION, {(c.name,): c.last_duration_s or 0.0 for c in collectors})
    metrics.replace(
        r.COLLECTOR_SUCCESS, {(c.name,): float(c.success) for c in collectors if not c.missing}
    )
    metrics.replace(r.COLLECTOR_SAMPLES, {(c.name,): float(c.samples) for c in collectors})
    metrics.replace(r.COLLECTOR_SHED, {(c.name,): float(c.shed) for c in collectors})
    metrics.replace(
        r.COLLECTOR_STALENESS,
        {(c.name,): c.staleness_s for c in collectors if c.staleness_s is not None},
    )
    histogram = parts.actuator.histogram
    durations: dict[Labels, Histogram] = {}
    for labels, counts in histogram.counts.items():
        durations[labels] = Histogram(list(counts), histogram.sums_ms[labels])
    metrics.histograms[r.RESOURCE_UPDATE_DURATION] = durations
