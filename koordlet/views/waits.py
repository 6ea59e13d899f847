"""Who makes whom wait, on the metrics page; and what our programs in the kernel cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet.decision import metrics as k
from koordlet.decision.family import Labels
from koordlet.decision.metrics import WAITS, Metric
from koordlet.engine.engine import Engine
from koordlet.report import metrics as r
from koordlet.views.usage import Usage


def publish(
    engine: Engine,
    usage: Usage,
    pods: Mapping[str, Labels],
    containers: Mapping[str, Labels],
) -> Iterator[None]:
    """``pods``, ``containers``: labels by uid and by id."""
    of_pods: dict[Labels, float] = {}
    of_applications: dict[Labels, float] = {}
    for kind in WAITS:
        for (uid, culprit, culprit_kind), value in _fresh(usage, kind.pod):
            if uid in pods:
                of_pods[kind.resource, *pods[uid], culprit_kind, culprit] = value / 1000
        yield
        for (name, culprit, culprit_kind), value in _fresh(usage, kind.application):
            of_applications[kind.resource, name, culprit_kind, culprit] = value / 1000
    metrics = engine.parts.metrics
    metrics.replace(r.POD_WAIT, of_pods)
    metrics.replace(r.HOST_APPLICATION_WAIT, of_applications)
    yield
    latencies = _fresh(usage, k.CONTAINER_RUN_QUEUE_LATENCY)
    metrics.replace(
        r.CONTAINER_RUN_QUEUE_LATENCY,
        {
            (*containers[container], quantile): value / 1e6
            for (container, quantile), value in latencies
            if container in containers
        },
    )
    costs = engine.parts.runner.kernel_costs()
    metrics.replace(r.BPF_PROGRAM_CORES, {(name,): each.cores for name, each in costs.items()})
    metrics.replace(
        r.BPF_PROGRAM_RUN, {(name,): each.ns_per_run / 1e9 for name, each in costs.items()}
    )


def _fresh(usage: Usage, metric: Metric) -> Iterator[tuple[Labels, float]]:
    """A culprit that stopped stands at 0 for a while; the page leaves it out."""
    found = usage.latest(metric, slow=True).items()
    return ((labels, value) for labels, value in found if value > 0)
