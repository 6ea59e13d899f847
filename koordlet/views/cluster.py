"""The node as a member of its cluster, as the local API and the metrics page show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from koordlet.admin.cluster import NODE_SLO_DEFINITION, ClusterObjectView, ClusterView
from koordlet.cluster.known import Known
from koordlet.cluster.options import Options
from koordlet.cluster.reporting.lent import Report
from koordlet.decision.family import Labels
from koordlet.engine.parts import Parts
from koordlet.protocol.objects.node_metric import NodeMetricStatus, ResourceMap
from koordlet.protocol.quantity import NANO, parse_quantity
from koordlet.protocol.resources import CPU, MEMORY
from koordlet.report import metrics as r

if TYPE_CHECKING:  # with aiohttp
    from koordlet.cluster.member import Member


class Joined(Protocol):
    """What the daemon knows of its membership. ``options``: None where there is no cluster;
    ``member``: None until its modules are there. ``reports``: what the cluster was told;
    ``status``: of the NodeMetric, as told last."""

    @property
    def options(self) -> Options | None: ...

    @property
    def known(self) -> Known: ...

    @property
    def member(self) -> Member | None: ...

    @property
    def reports(self) -> tuple[Report, ...]: ...

    @property
    def status(self) -> NodeMetricStatus | None: ...


def cluster_view(parts: Parts, joined: Joined) -> ClusterView:
    options, member = joined.options, joined.member
    if options is None:
        return ClusterView()
    if member is None:
        objects = tuple(_known(joined.known, parts.host.time()))
        return ClusterView(enabled=True, node=options.node, objects=objects, error="starts")
    nodes = member.nodes
    return ClusterView(
        enabled=True,
        server=member.cluster.server if member.cluster is not None else "",
        node=options.node,
        connected=not member.is_away,
        error=parts.problems.get("cluster", "") or (nodes.error if nodes is not None else ""),
        writes=member.client.writes if member.client is not None else 0,
        objects=(
            *_mirrored(parts, member),
            *_of_definitions(member),
            *_of_kubelet(parts, member),
            *(
                ClusterObjectView(
                    kind=each.kind,
                    name=each.text,
                    state="reported" if each.age_s is not None else "missing",
                    age_s=each.age_s,
                    error=each.error,
                )
                for each in joined.reports
            ),
        ),
    )


def publish_cluster(parts: Parts, view: ClusterView, joined: Joined | None) -> None:
    metrics = parts.metrics
    if joined is not None and joined.member is not None:
        for kind, count in joined.member.unreadable().items():
            metrics.set(r.CLUSTER_OBJECTS_REFUSED, float(count), (kind,))
    metrics.set(r.CLUSTER_CONNECTED, float(view.connected))
    metrics.set(r.CLUSTER_WRITES, float(view.writes))
    ages: dict[Labels, float] = {
        (each.kind,): each.age_s
        for each in view.objects
        if each.age_s is not None and each.state != "reported"
    }
    metrics.replace(r.CLUSTER_OBJECT_AGE, ages)


def publish_node_metric(parts: Parts, status: NodeMetricStatus | None) -> None:
    """What was reported last (docs/reference/metrics.md 5.5); nothing before the first report."""
    used = status.node_metric if status is not None else None
    numas = used.numa_usages if used is not None else ()
    for family, usage in (
        (r.NODE_METRIC_NODE_USAGE, used.node_usage if used is not None else None),
        (r.NODE_METRIC_SYSTEM_USAGE, used.system_usage if used is not None else None),
    ):
        parts.metrics.replace(family, dict(_samples((), usage)) if usage is not None else {})
    for family, of_numa in (
        (r.NODE_METRIC_NUMA_NODE_USAGE, [(each, each.node_usage) for each in numas]),
        (r.NODE_METRIC_NUMA_SYSTEM_USAGE, [(each, each.system_usage) for each in numas]),
    ):
        parts.metrics.replace(
            family,
            {
                labels: value
                for each, usage in of_numa
                for labels, value in _samples((str(each.numa_node_id),), usage)
            },
        )


_UNITS = {CPU: "core", MEMORY: "byte"}


def _samples(before: Labels, usage: ResourceMap) -> Iterator[tuple[Labels, float]]:
    for name, text in sorted(usage.resources.items()):
        if name in _UNITS:
            yield (*before, name, _UNITS[name]), parse_quantity(text).nano / NANO


def _known(known: Known, now_s: float) -> Iterator[ClusterObjectView]:
    age_s = max(now_s - known.heard_s, 0.0)
    for kind, found in (("Node", known.node), ("NodeSLO", known.slo)):
        if found is not None:
            yield ClusterObjectView(
                kind=kind, name=found.metadata.name, state="last known", age_s=age_s
            )


def _mirrored(parts: Parts, member: Member) -> Iterator[ClusterObjectView]:
    now_s, time_s = parts.host.monotonic(), parts.host.time()
    known = {"Node": member.node, "NodeSLO": member.slo}
    for mirror in member.mirrors():
        kind = mirror.kind.name
        if mirror.heard_s is not None:
            age_s: float | None = now_s - mirror.heard_s if mirror.error else 0.0
        else:
            known_s = member.known.heard_s
            age_s = max(time_s - known_s, 0.0) if known_s else None
        if kind == "Pod":
            name = str(len(mirror.objects) if mirror.synced else len(parts.listed["api"].pods()))
            state = "watched" if mirror.synced and not mirror.error else "last known"
        elif (found := known[kind]) is None:
            name, state, age_s = member.options.node, "missing", None
        else:
            name = found.metadata.name
            is_heard = mirror.synced and not mirror.error
            state = "watched" if is_heard else "last known"
            if kind in member.deleted and is_heard:
                state = "deleted"
        yield ClusterObjectView(kind=kind, name=name, state=state, age_s=age_s, error=mirror.error)


def _of_definitions(member: Member) -> Iterator[ClusterObjectView]:
    definitions = member.definitions
    if definitions.lacks is not None and member.slos is not None:
        yield ClusterObjectView(
            kind=NODE_SLO_DEFINITION,
            name=str(member.slos.kind),
            state="asked",
            error=definitions.error,
        )


def _of_kubelet(parts: Parts, member: Member) -> Iterator[ClusterObjectView]:
    follower, source = member.kubelet, parts.listed["kubelet"]
    if follower is None or not member.options.kubelet:
        return
    config = follower.config
    yield ClusterObjectView(
        kind="kubelet",
        name=f"CPU manager {config.cpu_manager_policy}" if config is not None else "",
        state="asked" if config is not None else "missing",
        error="; ".join(filter(None, (follower.error, follower.cpu_error))),
    )
    if source.listed:
        yield ClusterObjectView(
            kind="kubelet's pods", name=str(len(source.pods())), state="asked", error=source.error
        )
