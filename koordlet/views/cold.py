"""Cold memory on the metrics page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet.collectors.cold import families as f
from koordlet.collectors.cold.collector import KOORDLET_COLD_CPU_USAGE
from koordlet.collectors.cold.groups import OF_APPLICATIONS, OF_CONTAINERS, OF_NODE, OF_PODS, Kinds
from koordlet.decision.family import Labels
from koordlet.decision.metrics import Metric
from koordlet.report.registry import Metrics
from koordlet.views.usage import Usage


def publish_cold(
    metrics: Metrics,
    usage: Usage,
    pods: Mapping[str, Labels],
    containers: Mapping[str, Labels],
    applications: Mapping[str, Labels],
) -> Iterator[None]:
    """``pods`` and so on: label of the series -> labels of the page. Yields between the sorts."""
    for kinds, families, subjects in (
        (OF_NODE, f.NODE, {"": ()}),
        (OF_PODS, f.PODS, pods),
        (OF_CONTAINERS, f.CONTAINERS, containers),
        (OF_APPLICATIONS, f.APPLICATIONS, applications),
    ):
        _publish(metrics, usage, kinds, families, subjects)
        yield
    metrics.replace(f.SCAN_CPU_CORES, usage.latest(KOORDLET_COLD_CPU_USAGE, slow=True))


def _publish(
    metrics: Metrics,
    usage: Usage,
    kinds: Kinds,
    families: f.Families,
    subjects: Mapping[str, Labels],
) -> None:
    def samples(metric: Metric | None, *more: str) -> dict[Labels, float]:
        found = usage.latest(metric, slow=True) if metric is not None else {}
        return {
            (*subjects[label], *more): value
            for labels, value in found.items()
            if (label := "".join(labels)) in subjects
        }

    by = usage.cold_method()
    cold: dict[Labels, float] = {}
    for pages, metric in (
        ("file", kinds.cold_file),
        ("anon", kinds.cold_anon),
        ("mapped", kinds.cold_mapped),
    ):
        cold |= samples(metric, pages, by)
    metrics.replace(families.cold, cold)
    metrics.replace(families.with_hot, samples(kinds.with_hot, by))
    if families.refault is not None and families.confirmed is not None:
        metrics.replace(families.refault, samples(kinds.refault))
        metrics.replace(families.confirmed, samples(kinds.confirmed))
