"""Which pods a recommendation is about, and how a pod's usage is divided."""

from __future__ import annotations

import pytest

from koord_scheduler.recommend.target import (
    Container,
    divided,
    is_about,
    target_problems,
    workloads,
)
from koordlet.protocol.objects.recommendation import RecommendationTarget, WorkloadReference
from koordlet.protocol.selector import LabelSelector, Requirement

OF_DEPLOYMENT = (
    [("apps/v1", "ReplicaSet", "web-6d4cf56db6")],
    {"app": "web", "pod-template-hash": "6d4cf56db6"},
)
OF_ROLLOUT = (
    [("apps/v1", "ReplicaSet", "web-59c4")],
    {"rollouts-pod-template-hash": "59c4"},
)
OF_CRON_JOB = ([("batch/v1", "Job", "report-29393280")], {})
OF_JOB = ([("batch/v1", "Job", "report")], {})
OF_SET = ([("apps/v1", "StatefulSet", "db")], {"app": "db"})
OF_CLONE_SET = ([("apps.kruise.io/v1alpha1", "CloneSet", "web")], {})
BARE = ([], {"app": "web"})


def _workload(kind: str, name: str, api_version: str = "") -> RecommendationTarget:
    return RecommendationTarget("workload", WorkloadReference(kind, name, api_version))


def _labelled(**labels: str) -> RecommendationTarget:
    return RecommendationTarget("podSelector", pod_selector=LabelSelector(match_labels=labels))


@pytest.mark.parametrize(
    ("target", "pod", "expected"),
    [
        (_workload("Deployment", "web", "apps/v1"), OF_DEPLOYMENT, True),
        (_workload("Deployment", "web", "apps/v1beta1"), OF_DEPLOYMENT, True),
        (_workload("Deployment", "web", "extensions/v1beta1"), OF_DEPLOYMENT, False),
        (_workload("Deployment", "web"), OF_DEPLOYMENT, True),
        (_workload("Deployment", "we"), OF_DEPLOYMENT, False),
        (_workload("Deployment", "web-6d4cf56db6"), OF_DEPLOYMENT, False),
        (_workload("ReplicaSet", "web-6d4cf56db6"), OF_DEPLOYMENT, True),
        (_workload("Rollout", "web", "argoproj.io/v1alpha1"), OF_ROLLOUT, True),
        (_workload("Deployment", "web"), OF_ROLLOUT, False),
        (_workload("CronJob", "report", "batch/v1"), OF_CRON_JOB, True),
        (_workload("CronJob", "report"), OF_JOB, False),
        (_workload("Job", "report"), OF_JOB, True),
        (_workload("StatefulSet", "db"), OF_SET, True),
        (_workload("DaemonSet", "db"), OF_SET, False),
        (_workload("CloneSet", "web", "apps.kruise.io/v1alpha1"), OF_CLONE_SET, True),
        (_workload("Deployment", "web"), BARE, False),
        (_labelled(app="web"), BARE, True),
        (_labelled(app="web"), OF_DEPLOYMENT, True),
        (_labelled(app="web"), OF_SET, False),
        (RecommendationTarget("podSelector"), BARE, False),
        (RecommendationTarget("workload"), OF_SET, False),
    ],
)
def test_pods_of_a_target(
    target: RecommendationTarget,
    pod: tuple[list[tuple[str, str, str]], dict[str, str]],
    expected: bool,
) -> None:
    owners, labels = pod
    assert is_about(target, workloads(owners, labels), labels) is expected


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (RecommendationTarget("workload"), "spec.target.workload"),
        (_workload("", "web"), "spec.target.workload"),
        (_workload("Deployment", ""), "spec.target.workload"),
        (RecommendationTarget("podSelector"), "spec.target.podSelector"),
        (
            RecommendationTarget(
                "podSelector",
                pod_selector=LabelSelector(match_expressions=(Requirement("a", "In"),)),
            ),
            "spec.target.podSelector.matchExpressions[0].values",
        ),
    ],
)
def test_targets_that_mean_nothing(target: RecommendationTarget, path: str) -> None:
    assert [each.path for each in target_problems(target)] == [path]


@pytest.mark.parametrize("target", [_workload("Deployment", "web"), _labelled(app="web")])
def test_targets_that_mean_something(target: RecommendationTarget) -> None:
    assert target_problems(target) == []


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([Container("a", 0, 0)], [("a", 900, 600)]),
        ([Container("a", 100, 1), Container("b", 200, 2)], [("a", 300, 200), ("b", 600, 400)]),
        ([Container("a", 100, 1), Container("b", 0, 2)], [("a", 450, 200), ("b", 450, 400)]),
        ([], []),
    ],
)
def test_a_pod_divided(
    containers: list[Container], expected: list[tuple[str, float, float]]
) -> None:
    assert divided(containers, 900, 600) == [
        (name, pytest.approx(cpu), pytest.approx(memory)) for name, cpu, memory in expected
    ]
