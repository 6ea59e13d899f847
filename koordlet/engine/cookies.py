"""Core-scheduling cookies on the metrics page (docs/reference/metrics.md 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlet.actuator.outcome import Outcome
from koordlet.decision.family import Labels
from koordlet.decision.plan import Result, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, Pod
from koordlet.hooks.core_sched import reference_name
from koordlet.report import metrics as r
from koordlet.report.registry import Metrics

_STATUS = {
    Result.WRITTEN: "succeeded",
    Result.RESTORED: "succeeded",
    Result.REFUSED: "failed",
    Result.UNSUPPORTED: "failed",
}


def count(metrics: Metrics, outcome: Outcome) -> None:
    """What became of the cookies of one cgroup. One that goes back counts for the group it left."""
    status = _STATUS.get(outcome.result)
    if outcome.resource is not Resource.CORE_SCHED_GROUP or status is None:
        return
    group = outcome.found if outcome.result is Result.RESTORED else outcome.wanted
    metrics.inc(r.CORE_SCHED_COOKIE_MANAGE_STATUS, (reference_name(str(group)), status))


def publish(
    metrics: Metrics,
    settings: Iterable[Setting],
    owners: Mapping[str, tuple[Pod, Container]],
    cookies: Mapping[str, int],
) -> None:
    """``owners``: by cgroup. ``cookies``: of each group that has one."""
    samples: dict[Labels, float] = {}
    for each in settings:
        cookie = cookies.get(str(each.value))
        if each.resource is Resource.CORE_SCHED_GROUP and each.cgroup in owners and cookie:
            pod, container = owners[each.cgroup]
            group = reference_name(str(each.value))
            names = (pod.uid, pod.name, pod.namespace, container.name, container.id)
            samples[*names, group, str(cookie)] = 1.0
    metrics.replace(r.CONTAINER_CORE_SCHED_COOKIE, samples)
